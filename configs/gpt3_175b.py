"""GPT-3 175B: a train step with AdamW over a TPU pod and over GPU hosts; nothing is measured.

    python main.py run --config=configs/gpt3_175b.py

Divided as in configs/llama2_70b.py. The vocabulary of 50,257 divides over nothing, so that it is
filled up to 50,304 entries, as GPT implementations do (karpathy/nanoGPT, model.py).
"""

from accel_bench.config import base


def get_config():
    config = base("gpt3_175b")
    config.device = "none"
    config.targets = ("tpu:v5p:8x8x8", "tpu:v4:8x8x8", "gpu:a100_80:64x8", "gpu:h100_sxm:64x8")
    config.precision = ("mixed_bf16",)
    config.mesh = "fsdp:*,model:8"
    config.model.remat = "full"
    config.model.vocab_size = 50_304
    config.cases = {
        "train": {
            "workload": "model",
            "phase": "train_step",
            "model": "gpt3_175b",
            "batch": "1/replica",
            "length": 2048,
        },
    }
    return config
