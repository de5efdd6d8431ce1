"""What a runtime of Google Colab, or any machine, can do, in a minute or two.

    python main.py run --config=configs/colab.py

The experiment of `notebooks/quickstart.ipynb`: `configs/default.py` with fewer sizes and nothing
compiled for others. Expect the rate of matmul to grow with the size, and bf16 to be several times
fp32 on a TPU and on GPUs since Ampere, no faster where it is emulated (T4, most CPUs).
"""

from accel_bench.config import base, by_platform

MIB, GIB = 1 << 20, 1 << 30


def get_config():
    config = base("colab")
    config.precision = ("fp32", "bf16")
    config.measure.max_seconds = 1.0
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    config.cases = {
        "dispatch": {"workload": "dispatch", "mode": ("queued", "blocking")},
        "matmul": {
            "workload": "matmul",
            "shape": by_platform(cpu=("512", "1024", "2048"), accelerator=("1024", "4096", "8192")),
        },
        "memory": {
            "workload": "memory",
            "op": "triad",
            "bytes": by_platform(cpu=(12 * MIB, 384 * MIB), accelerator=(24 * MIB, 3 * GIB)),
        },
        "transfer": {
            "workload": "transfer",
            "direction": ("h2d", "d2h"),
            "bytes": by_platform(cpu=64 * MIB, accelerator=256 * MIB),
        },
        "attention": {
            "workload": "attention",
            "model": model,
            "batch": 4,
            "length": by_platform(cpu=256, accelerator=1024),
        },
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": model,
            "batch": 8,
            "length": by_platform(cpu=256, accelerator=1024),
        },
    }
    return config
