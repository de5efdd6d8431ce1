"""Matrix products: square sizes, a batch of small ones, and the shapes inside GPT-2.

    python main.py run --config=configs/matmul.py --precision=fp32,bf16 --baselines=numpy,torch

Expect the rate to grow with the size until the multipliers are full, bf16 to be several times fp32
where there is a unit for it, and thin shapes to stay below the square ones.
"""

from accel_bench.config import base, by_platform
from models.sizes import SIZES, gemm_shapes


def gemms(model: str, tokens: int) -> tuple[str, ...]:
    """The products of one layer of a model and its unembedding, for so many tokens."""
    shapes = gemm_shapes(SIZES[model], tokens)
    return tuple(f"{name}={m}x{k}x{n}" for name, (m, k, n) in shapes.items())


def get_config():
    config = base("matmul")
    config.cases = {
        "square": {
            "workload": "matmul",
            "shape": by_platform(
                cpu=("256", "512", "1024", "2048", "4096"),
                accelerator=("512", "1024", "2048", "4096", "8192", "16384"),
            ),
        },
        "batched": {
            "workload": "matmul",
            "shape": by_platform(
                cpu=("batched=64x128x128x128",), accelerator=("batched=512x512x512x512",)
            ),
        },
        "gpt2": {
            "workload": "matmul",
            "shape": by_platform(
                cpu=gemms("gpt2_124m", 512), accelerator=gemms("gpt2_124m", 16384)
            ),
        },
    }
    return config
