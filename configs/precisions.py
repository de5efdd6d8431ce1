"""One model over the precisions: time, rate, error and memory beside one another.

    python main.py run --config=configs/precisions.py
    python main.py run --config=configs/precisions.py --device=gpu --config.cases.train.batch=32

Expect 16 bits to halve the bytes of weights and caches, and 8 bits those of the layers once more;
what is faster depends on the hardware: where it has no unit for a precision, rows say `emulated`.
Mixed precisions keep fp32 weights, so that they spare time and activations but no weights. A train
step in 8 bits is `unsupported`, and so is one in pure fp16, where AdamW's epsilon is 0. How well
each learns: `--config=configs/digits.py --precision=...`.
"""

from accel_bench.config import base, by_platform


def get_config():
    config = base("precisions")
    config.precision = ("fp32", "mixed_bf16", "mixed_fp16", "bf16", "int8", "fp8_e4m3")
    config.measure.max_seconds = 2.0
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    length = by_platform(cpu=128, accelerator=1024)
    config.cases = {
        "train": {
            "workload": "model",
            "phase": ("forward", "train_step", "prefill"),
            "model": model,
            "batch": by_platform(cpu=4, accelerator=16),
            "length": length,
        },
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": model,
            "batch": by_platform(cpu=4, accelerator=16),
            "length": length,
        },
    }
    return config
