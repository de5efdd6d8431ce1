"""What relief of a slow network costs in loss: the digits learnt by two and four processes.

    python main.py run --config=configs/network_learning.py --device=cpu

Every case learns from the same images in the same order, over links of 10 Mbit/s between processes
that stand for hosts (see configs/network.py; needs root on Linux). The model is small, 78,000
parameters, so that its gradients in fp32 take such a link about as long as the computing takes
several cores. Takes about 15 minutes.

Read the loss after equal images, which says what a relief costs, beside the loss after equal time,
which says what it gains. Expect bf16, int8 and a few local steps to learn about as much from as
many images and to be ahead after as much time. Accumulation exchanges a quarter as often too, but
takes a quarter of the steps for it, and so learns far less from as many images.
"""

from accel_bench.config import base

IMAGES, BATCH = 300 * 96, 96


def get_config():
    config = base("network_learning")
    config.timeout_s = 1800.0
    learn = {
        "workload": "training",
        "task": "digits",
        "model": "digits_fast",
        "batch": BATCH,
        "steps": IMAGES // BATCH,
        "learning_rate": 2e-3,
        "warmup": 30,
        "eval_every": 20,
        "checkpoint_every": 0,
        "processes": (2, 4),
        "link": "10mbit",
    }
    config.cases = {
        "formats": {**learn, "exchange": ("fp32", "bf16", "int8")},
        # A step takes four batches: a quarter of the steps, and of the steps between two looks.
        "accumulate": {
            **learn,
            "exchange": "fp32",
            "accumulate": 4,
            "steps": IMAGES // BATCH // 4,
            "warmup": 8,
            "eval_every": 5,
        },
        "local_steps": {**learn, "exchange": "fp32", "local_steps": 5},
    }
    return config
