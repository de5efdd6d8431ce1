"""What a slow network does to data-parallel training, and what relieves it.

    python main.py run --config=configs/network.py --device=cpu

Two and four processes on this machine stand for as many hosts. Each is in a Linux network namespace
of its own, behind a network card of 100 Mbit/s, 1 Gbit/s, 10 Gbit/s or no limit (this needs root on
Linux; elsewhere the rows are `unsupported`), and has its own share of the cores; what they exchange
passes through gloo, as it would between hosts. Takes about 20 minutes.

Expect a step at 100 Mbit/s to be nearly all exchange, gradients in bf16 and int8 to halve and to
quarter it, and local steps and accumulation to divide it by how seldom they exchange. What they
cost in loss is `configs/network_learning.py`.
"""

from accel_bench.config import base

LINKS = ("100mbit", "1gbit", "10gbit", "unlimited")


def get_config():
    config = base("network")
    # Seconds a step: few of them are enough where links, not cores, set the time.
    config.measure.max_seconds = 2.0
    config.measure.min_samples = 3
    step = {
        "workload": "model",
        "phase": "train_step",
        "model": "gpt2_char",
        "batch": "2/replica",
        "length": 64,
        "processes": (2, 4),
        "link": LINKS,
    }
    config.cases = {
        "formats": {**step, "exchange": ("fp32", "bf16", "int8")},
        "accumulate": {**step, "exchange": "fp32", "accumulate": 4},
        "local_steps": {**step, "exchange": "fp32", "local_steps": 8},
    }
    return config
