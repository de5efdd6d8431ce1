"""One small case of each kind, in seconds: does everything work here?

    python main.py run --config=configs/smoke.py --workdir=runs/smoke

The figures are of small sizes: most rows are marked dispatch-bound or cache-resident.
"""

from accel_bench.config import base


def get_config():
    config = base("smoke")
    config.measure.max_seconds = 0.2
    config.measure.target = 0.05
    config.cases = {
        "dispatch": {"workload": "dispatch", "mode": "queued"},
        "matmul": {"workload": "matmul", "shape": ("256", "batched=4x64x128x32")},
        "memory": {"workload": "memory", "op": ("copy", "latency"), "bytes": 1 << 20},
        "transfer": {"workload": "transfer", "direction": ("h2d", "overlap"), "bytes": 1 << 20},
        "attention": {"workload": "attention", "model": "tiny", "batch": 2, "length": 64},
        "model": {
            "workload": "model",
            "phase": ("train_step", "decode"),
            "model": "tiny",
            "batch": 2,
            "length": 32,
        },
    }
    return config
