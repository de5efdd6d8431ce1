"""A training of seconds, for studies of how gradients are exchanged.

    python main.py run --config=configs/digits_fast.py
    python main.py run --config=configs/digits_fast.py --config.cases.digits.exchange=int8

Expect 93 % of the held-out digits or more after 300 steps, in ten to twenty seconds on two CPU
cores.
"""

from accel_bench.config import base


def get_config():
    config = base("digits_fast")
    config.timeout_s = 3600.0
    config.cases = {
        "digits": {
            "workload": "training",
            "task": "digits",
            "model": "digits_fast",
            "batch": 96,
            "steps": 300,
            "learning_rate": 2e-3,
            "warmup": 30,
            "weight_decay": 0.1,
            "clip": 1.0,
            "exchange": "auto",
            "accumulate": 1,
            "local_steps": 1,
            "eval_every": 20,
            "checkpoint_every": 100,
            "shifts": False,
            "also_in": "",
        },
    }
    return config
