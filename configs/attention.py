"""Causal attention over the length of the sequence, by implementation.

    python main.py run --config=configs/attention.py --precision=fp32,bf16

The work grows with the square of the length. `einsum` is the model's own, `jax` is
jax.nn.dot_product_attention compiled by XLA, `cudnn` is NVIDIA's fused kernel (GPUs only).
"""

from accel_bench.config import base, by_platform


def get_config():
    config = base("attention")
    config.measure.max_seconds = 2.0
    config.cases = {
        "sweep": {
            "workload": "attention",
            "model": "gpt2_124m",
            "batch": by_platform(cpu=1, accelerator=8),
            "length": by_platform(cpu=(128, 512, 2048), accelerator=(512, 2048, 8192)),
            "implementation": ("einsum", "jax", "cudnn"),
        },
    }
    return config
