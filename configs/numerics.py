"""How exact this machine computes: errors in ulps against float64, and what is lost.

    python main.py run --config=configs/numerics.py --device=cpu

Takes under two minutes on two cores. Expect half an ulp where a result is rounded once; errors of
sums that hardly grow with the number of terms where they are added up in pairs or blocks; denormals
that are flushed to zero on most back ends; a norm that overflows for numbers whose square does; and
gradients in fp16 that need the loss scaled.
"""

from accel_bench.config import base

PRECISIONS = (
    "fp32", "fp32_default", "tf32", "bf16", "fp16", "mixed_bf16", "fp8_e4m3", "int8",
)  # fmt: skip
RANGES = ("normal", "tiny", "huge", "mixed", "denormal")


def get_config():
    config = base("numerics")
    config.precision = PRECISIONS
    config.cases = {
        "ranges": _case(("matmul", "softmax", "norm", "attention"), (128,), RANGES),
        "sizes": _case(("matmul", "softmax", "norm", "attention"), (512,), ("normal",)),
        "terms": _case(("sum", "dot"), tuple(4**power for power in range(3, 11)), ("normal",)),
        "model": _case(("loss", "gradient", "train_step"), (32,), RANGES[:3]),
        "scaling": _case(("loss_scale",), (32,), ("normal",)),
    }
    return config


def _case(ops, sizes, ranges):
    return {"workload": "numerics", "op": ops, "size": sizes, "range": ranges}
