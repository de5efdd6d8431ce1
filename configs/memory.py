"""Bandwidth and latency of memory, from the first cache to main memory.

    python main.py run --config=configs/memory.py

Expect a staircase: each cache is several times as fast as the next, and a dependent load takes
1 to 2 ns in the first cache of a CPU and around 100 ns in main memory.
"""

from accel_bench.config import base, by_platform

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def get_config():
    config = base("memory")
    config.measure.max_seconds = 1.0
    sizes = by_platform(
        # Multiples of three arrays; from a first cache to four times a large last one.
        cpu=(*tuple(24 * KIB * 4**step for step in range(8)), 768 * MIB),
        accelerator=(*tuple(3 * MIB * 4**step for step in range(6)), 6 * GIB),
    )
    config.cases = {
        "stream": {
            "workload": "memory",
            "op": ("copy", "scale", "add", "triad", "dot"),
            "bytes": sizes,
        },
        "latency": {"workload": "memory", "op": "latency", "bytes": sizes},
    }
    return config
