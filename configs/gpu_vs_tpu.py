"""One GPU against one TPU chip: products, memory, attention, GPT-2's train step and decoding.

    python main.py run --config=configs/gpu_vs_tpu.py --workdir=runs/tpu

The experiment of `notebooks/gpu_vs_tpu.ipynb`; sizes are those that a Colab T4 and one chip of a
v5e hold. In 16 bits only, in which both are meant to be used; a T4 has no bf16 unit, and its rows
say `emulated`. Expect the large product to tell the peaks apart and decoding the memories.
"""

from accel_bench.config import base, by_platform

MIB, GIB = 1 << 20, 1 << 30


def get_config():
    config = base("gpu_vs_tpu")
    config.precision = ("bf16", "mixed_bf16")
    config.measure.max_seconds = 2.0
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    length = by_platform(cpu=128, accelerator=1024)
    config.cases = {
        "matmul": {
            "workload": "matmul",
            "shape": by_platform(cpu=("512", "1024"), accelerator=("1024", "4096", "8192")),
        },
        "memory": {
            "workload": "memory",
            "op": "triad",
            "bytes": by_platform(cpu=384 * MIB, accelerator=(24 * MIB, 3 * GIB)),
        },
        "attention": {"workload": "attention", "model": model, "batch": 4, "length": length},
        "train": {
            "workload": "model",
            "phase": "train_step",
            "model": model,
            "batch": 4,
            "length": length,
        },
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": model,
            "batch": 8,
            "length": length,
        },
    }
    return config
