"""What this machine can do, in about two minutes: launches, matmul, memory, transfer, the model.

    python main.py

Sizes are fit for a laptop's CPU, and larger ones are taken on a GPU or TPU. Expect matmul to near
the peak as it grows, memory bandwidth to fall in steps as the data outgrows the caches, and a train
step to reach about half of the matmul rate or more. Where the compilers for a TPU and a GPU are
installed, the same cases are compiled for one of each and stand beside what was measured.
"""

from accel_bench.config import base, by_platform

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def get_config():
    config = base("default")
    config.precision = ("fp32", "bf16")
    config.measure.max_seconds = 1.0
    config.targets = ("auto",)
    # A TPU's compiler takes minutes for a train step in fp32: see configs/compile_model.py.
    config.compile_cases = ("matmul", "memory", "attention", "decode")
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    batch = by_platform(cpu=12, accelerator=16)
    length = by_platform(cpu=256, accelerator=1024)
    config.cases = {
        "dispatch": {"workload": "dispatch", "mode": ("queued", "blocking")},
        "matmul": {
            "workload": "matmul",
            "shape": by_platform(
                cpu=("512", "1024", "2048", "4096"),
                accelerator=("1024", "2048", "4096", "8192", "16384"),
            ),
        },
        "memory": {
            "workload": "memory",
            "op": ("triad", "latency"),
            "bytes": by_platform(
                cpu=(24 * KIB, 384 * KIB, 12 * MIB, 384 * MIB),
                accelerator=(24 * MIB, 384 * MIB, 3 * GIB),
            ),
        },
        "transfer": {
            "workload": "transfer",
            "direction": ("h2d", "d2h", "overlap"),
            "bytes": by_platform(cpu=64 * MIB, accelerator=256 * MIB),
        },
        "attention": {
            "workload": "attention",
            "model": model,
            "batch": by_platform(cpu=4, accelerator=16),
            "length": by_platform(cpu=(256, 1024), accelerator=(1024, 4096)),
        },
        "train": {
            "workload": "model",
            "phase": ("train_step", "prefill"),
            "model": model,
            "batch": batch,
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
