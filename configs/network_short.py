"""Four processes over a slow and an unlimited network, and what relieves the slow one.

    python main.py run --config=configs/network_short.py --device=cpu --workdir=runs/network

The short form of configs/network.py, with a smaller model: a few minutes. Needs root on
Linux for the network namespaces; elsewhere the rows are `unsupported`. Expect most of a step at
100 Mbit/s to be exchange, and less of it without a limit; int8 and eight local steps to win most of
it back.
"""

from accel_bench.config import base


def get_config():
    config = base("network_short")
    config.measure.max_seconds = 12.0  # six steps of two seconds at least, or nothing is claimed
    step = {
        "workload": "model",
        "phase": "train_step",
        "model": "bytes_small",
        "batch": "2/replica",
        "length": 128,
        "processes": 4,
    }
    config.cases = {
        "formats": {**step, "link": ("100mbit", "unlimited"), "exchange": ("fp32", "int8")},
        "local_steps": {**step, "link": "100mbit", "exchange": "fp32", "local_steps": 8},
    }
    return config
