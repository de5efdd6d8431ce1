"""Inference over the batch: reading a prompt, and one token after the other, greedy and sampled.

    python main.py run --config=configs/inference.py --precision=bf16
    python main.py run --config=configs/inference.py --device=gpu --precision=bf16,int8,fp8_e4m3

A decode step reads all weights for one token of each sequence, so that a larger batch gives more
tokens per second at hardly more latency, until its products or its cache take over. Expect tokens
per second to grow nearly with the batch at first, and p50 of a single step above the row's time by
what a wait costs. `sampling=top_k` adds little to a step where the vocabulary is small against it.
"""

from accel_bench.config import base, by_platform


def get_config():
    config = base("inference")
    config.measure.max_seconds = 2.0
    model = by_platform(cpu="gpt2_char", accelerator="gpt2_124m")
    batch = by_platform(cpu=(1, 2, 4, 8, 16), accelerator=(1, 2, 4, 8, 16, 32, 64, 128))
    length = by_platform(cpu=256, accelerator=1024)
    config.cases = {
        "prefill": {
            "workload": "model",
            "phase": "prefill",
            "model": model,
            "batch": batch,
            "length": length,
        },
        "decode": {
            "workload": "model",
            "phase": "decode",
            "model": model,
            "batch": batch,
            "length": length,
            "sampling": ("greedy", "top_k"),
        },
    }
    return config
