"""Trains a small Transformer to predict the bytes of a text.

    python main.py run --config=configs/text.py
    python main.py run --config=configs/text.py --config.cases.text.file=README.md

Without a file the text is that of Python's own help topics, about 700 kB. Expect the loss on the
held-out tenth of it to fall from 5.5 to below 1.6 nats a byte in 500 steps, in about a minute on
two CPU cores that have nothing else to do.
"""

from accel_bench.config import base


def get_config():
    config = base("text")
    config.timeout_s = 3600.0
    config.cases = {
        "text": {
            "workload": "training",
            "task": "text",
            "file": "",
            "model": "bytes_small",
            "batch": 16,
            "length": 128,
            "steps": 500,
            "learning_rate": 3e-3,
            "warmup": 50,
            "weight_decay": 0.1,
            "clip": 1.0,
            "exchange": "auto",
            "accumulate": 1,
            "local_steps": 1,
            "eval_every": 50,
            "checkpoint_every": 100,
            "also_in": "",
        },
    }
    return config
