"""Collectives along each axis of a mesh, from sizes that are all latency to sizes that are all
bandwidth.

    python main.py run --config=configs/collectives.py --fake_devices=8 --mesh=data:8 --device=cpu
    python main.py run --config=configs/collectives.py --mesh=data:8

Takes a minute or two. Expect small sizes to take the same time whatever they are (tens of
microseconds on GPUs; a few tenths of a millisecond among virtual CPU devices), and the bus
bandwidth of the large ones to approach one figure for all operations: on GPUs of one host most of
NVLink, among virtual CPU devices a few GB/s, since what they exchange is copied within one memory.
On one device every row is skipped.
"""

from accel_bench.config import base, by_platform

KIB = 1 << 10
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ppermute")


def get_config():
    config = base("collectives")
    config.measure.max_seconds = 0.5
    # A case for each, so that a table goes through the sizes of one after the other.
    config.cases = {
        op: {"workload": "collective", "op": op, "axis": "each", "bytes": _sizes()} for op in OPS
    }
    return config


def _sizes():
    """Made anew for each case: what cases share, a flag for one of them changes for all."""
    return by_platform(
        cpu=tuple(KIB * 4**step for step in range(9)),  # to 64 MiB
        accelerator=tuple(KIB * 4**step for step in range(11)),  # to 1 GiB
    )
