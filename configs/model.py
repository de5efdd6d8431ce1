"""The Transformer: forward pass, train step, prefill and decode of GPT-2's size.

    python main.py run --config=configs/model.py --precision=fp32,mixed_bf16

Expect a train step at about three times the forward pass, and decoding to be bound by memory: a
batch of 8 takes little longer per step than one sequence. Other sizes: `python main.py run
--config=configs/model.py --config.cases.train.model=llama3_2_1b`.
"""

from accel_bench.config import base, by_platform


def get_config():
    config = base("model")
    config.measure.max_seconds = 10.0
    config.cases = {
        "train": {
            "workload": "model",
            "phase": ("forward", "train_step", "prefill"),
            "model": "gpt2_124m",
            "batch": by_platform(cpu=1, accelerator=16),
            "length": by_platform(cpu=256, accelerator=1024),
        },
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": "gpt2_124m",
            "batch": (1, 8),
            "length": by_platform(cpu=256, accelerator=1024),
        },
    }
    return config
