"""One model and one matrix product under every sharding, beside one device.

    python main.py run --config=configs/sharding.py --device=cpu --fake_devices=8

Every row is checked against float64, so the errors say whether a sharding computes the same; they
differ in the last bits only, as sums are taken in another order. Virtual CPU devices share the
machine's cores: there the times say what dividing the work costs, not what it gains.
"""

from accel_bench.config import base, by_platform

# All of eight devices but for the first.
MESHES = (
    "data:1",
    "data:8",
    "fsdp:8",
    "data:4,model:2",
    "fsdp:4,model:2",
    "data:4,seq:2",
    "data:2,fsdp:2,model:2",
    "fsdp:2,seq:2,model:2",
)


def get_config():
    config = base("sharding")
    config.measure.max_seconds = 0.5
    config.cases = {
        "matmul": {
            "workload": "matmul",
            "shape": by_platform(cpu=1024, accelerator=8192),
            "mesh": ("data:1", "data:8", "fsdp:8", "model:8", "data:2,fsdp:2,model:2"),
        },
        "model": {
            "workload": "model",
            "phase": ("forward", "train_step"),
            "model": by_platform(cpu="tiny", accelerator="llama3_2_1b"),
            "batch": 8,
            "length": by_platform(cpu=32, accelerator=1024),
            "mesh": MESHES,
        },
    }
    return config
