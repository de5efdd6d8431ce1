"""GPT-2's train step and decoding for one host of each accelerator; nothing is measured.

    python main.py run --config=configs/compile_model.py
    python main.py run --config=configs/compile_model.py --targets=tpu:v5p:4x4x4,gpu:h100_sxm:8x8

Each layer's activations are computed again in the backward pass, so expect the program to multiply
about a fifth more than the mathematics needs. Data parallelism over all devices: expect each
gradient to be reduced once a step.
"""

from accel_bench.config import base

TARGETS = (
    "tpu:v4:2x2x1", "tpu:v5e:2x2", "tpu:v5p:2x2x1", "tpu:v6e:2x2", "tpu:tpu7x:2x2x1",
    "gpu:a100_80:8", "gpu:h100_sxm:8", "gpu:h200:8", "gpu:b200:8",
)  # fmt: skip


def get_config():
    config = base("compile_model")
    config.device = "none"
    config.targets = TARGETS
    config.precision = ("mixed_bf16",)
    config.mesh = "data:*"
    config.model.remat = "full"
    config.cases = {
        "train": {
            "workload": "model",
            "phase": ("train_step", "decode"),
            "model": "gpt2_124m",
            "batch": "8/replica",
            "length": 1024,
        },
    }
    return config
