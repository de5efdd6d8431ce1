"""Strong and weak scaling of a train step over the devices there are: 1, 2, 4 and so on.

    python main.py run --config=configs/scaling.py
    python main.py run --config=configs/scaling.py --device=cpu --fake_devices=4

Strong: the batch is the same however many devices share it. Weak: every device has a batch of its
own. Read the rate per device beside that of one, and communication's share of the step, which is
the difference to the same step without its exchange. Virtual CPU devices share the machine's cores:
with them expect the rate of all together to stay the same at best, so the rate per device to halve
with each doubling, and the loss beyond that to be the price of dividing the work.
"""

from accel_bench.config import base, by_platform


def get_config():
    config = base("scaling")
    config.measure.max_seconds = 2.0
    step = {
        "workload": "model",
        "phase": "train_step",
        "model": by_platform(cpu="gpt2_char", accelerator="gpt2_124m"),
        "length": by_platform(cpu=64, accelerator=1024),
        "exchange": "fp32",
        "mesh": "data:each",
    }
    config.cases = {
        "strong": {**step, "batch": by_platform(cpu=8, accelerator=64)},
        "weak": {**step, "batch": by_platform(cpu="2/replica", accelerator="8/replica")},
    }
    return config
