"""Data between host and device by size, and how much of it computing hides.

    python main.py run --config=configs/transfer.py

On a GPU or TPU expect the rate to near the bus's (PCIe 4 x16: about 25 GB/s) from some megabytes
up, and a pipeline to hide most of the shorter of transfer and compute. On a CPU host and device
are the same memory: the rows say so.
"""

from accel_bench.config import base, by_platform

KIB, MIB = 1 << 10, 1 << 20


def get_config():
    config = base("transfer")
    config.measure.max_seconds = 2.0
    config.cases = {
        "copies": {
            "workload": "transfer",
            "direction": ("h2d", "d2h"),
            "bytes": tuple(64 * KIB * 8**step for step in range(5)),
        },
        "overlap": {
            "workload": "transfer",
            "direction": "overlap",
            "bytes": by_platform(cpu=64 * MIB, accelerator=512 * MIB),
            "chunks": (4, 16),
        },
    }
    return config
