"""Trains the Transformer to tell handwritten digits, on scikit-learn's 1797 images.

    python main.py run --config=configs/digits.py --workdir=runs/digits
    python main.py run --resume --workdir=runs/digits
    python main.py run --config=configs/digits.py --precision=fp32,mixed_bf16,bf16,mixed_fp16

Expect at least 97 % of the held-out images to be recognised after 1500 steps (97.8 to 98.6 % with
seeds 0 to 3), in one to two minutes on two CPU cores, with the input taking about 1 % of the time.
The second command carries on where the first was stopped, if it was. The third is a table of
accuracy, time and memory by precision of training; what was learnt is looked at in the precisions
of `also_in` as well.
"""

from accel_bench.config import base


def get_config():
    config = base("digits")
    config.timeout_s = 3600.0
    config.cases = {
        "digits": {
            "workload": "training",
            "task": "digits",
            "model": "digits",
            "shifts": True,
            "batch": 100,
            "steps": 1500,
            "learning_rate": 3e-3,
            "warmup": 50,
            "weight_decay": 1.0,
            "clip": 1.0,
            "exchange": "auto",
            "accumulate": 1,
            "local_steps": 1,
            "eval_every": 50,
            "checkpoint_every": 100,
            "also_in": "bf16,int8,fp8_e4m3",
        },
    }
    return config
