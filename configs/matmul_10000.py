"""The 10000 x 10000 product that articles compare CPUs and GPUs by.

    python main.py run --config=configs/matmul_10000.py --baselines=numpy,numpy_1thread

2 x 10^12 operations: about 5 s on two fast CPU cores, 30 ms in fp32 on a data-centre GPU, and a
few ms in bf16 there or on a TPU.
"""

from accel_bench.config import base


def get_config():
    config = base("matmul_10000")
    config.measure.max_seconds = 20.0
    config.cases = {"matmul": {"workload": "matmul", "shape": "10000"}}
    return config
