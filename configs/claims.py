"""What is often said about GPUs and TPUs, each claim with the case that tests it.

    python main.py run --config=configs/claims.py --baselines=numpy_1thread --workdir=runs/claims
    python main.py compare --claims runs/claims

Takes two to five minutes on two CPU cores, and some more with --targets=tpu:v5e:2x2,gpu:a100_80:8,
which compiles the cases as well. Run it on a CPU and on a GPU or TPU and give both to
`compare --claims`: it says of each of twenty claims what was measured, what was compiled, what is
published, what arithmetic gives, and whether it holds (docs/claims.md). Networks between hosts are
in configs/network_short.py, models too large for a machine in configs/gpt3_175b.py and
configs/llama2_70b.py; their runs can be given along.
"""

from accel_bench.config import base, by_platform

MIB = 1 << 20


def get_config():
    config = base("claims")
    config.precision = ("fp32", "bf16", "mixed_bf16", "int8")
    config.measure.max_seconds = 5.0  # six samples at least, or nothing is claimed
    # One loop over the layers: a TPU's compiler takes minutes for six written out in fp32.
    config.model.scan_layers = True
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    length = by_platform(cpu=128, accelerator=1024)
    config.cases = {
        # Claims 1, 6 and 18. One thread would take a minute or two for 10000 on a CPU: there the
        # time is derived from the rate at this size.
        "matmul": {
            "workload": "matmul",
            "shape": by_platform(cpu="2048", accelerator=("4096", "10000")),
        },
        # Claim 3.
        "memory": {
            "workload": "memory",
            "op": ("triad", "latency"),
            "bytes": by_platform(cpu=384 * MIB, accelerator=3072 * MIB),
        },
        # Claim 8.
        "transfer": {
            "workload": "transfer",
            "direction": ("h2d", "d2h", "overlap"),
            "bytes": by_platform(cpu=64 * MIB, accelerator=512 * MIB),
        },
        # Claims 9 and 18: skipped on a single device.
        "exchange": {"workload": "collective", "op": "all_reduce", "bytes": 64 * MIB},
        # Claim 11: a hundred images at once, each of 64 pixels.
        "digits": {
            "workload": "model",
            "phase": "forward",
            "model": "digits",
            "batch": 100,
            "length": 64,
        },
        # Claims 2, 10, 12 and 19.
        "train": {
            "workload": "model",
            "phase": "train_step",
            "model": model,
            "batch": by_platform(cpu=8, accelerator=32),
            "length": length,
        },
        # Claim 20.
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": model,
            "batch": by_platform(cpu=8, accelerator=16),
            "length": length,
        },
    }
    return config
