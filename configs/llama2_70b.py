"""LLaMA-2 70B: a train step with AdamW over a TPU pod and over GPU hosts; nothing is measured.

    python main.py run --config=configs/llama2_70b.py
    python main.py run --config=configs/llama2_70b.py --find_smallest_fit

Weights, gradients and moments are fp32 and divided over the devices (FSDP over the mesh axis
`fsdp`), each layer over 8 of them besides (tensor parallelism over `model`: one GPU host). One
sequence of 4096 tokens for each index of `fsdp`, each layer's activations computed again in the
backward pass. Needs no memory to speak of: nothing is ever allocated.
"""

from accel_bench.config import base


def get_config():
    config = base("llama2_70b")
    config.device = "none"
    config.targets = ("tpu:v5p:8x8x8", "gpu:a100_80:64x8", "gpu:h100_sxm:64x8")
    config.precision = ("mixed_bf16",)
    config.mesh = "fsdp:*,model:8"
    config.model.remat = "full"
    config.cases = {
        "train": {
            "workload": "model",
            "phase": "train_step",
            "model": "llama2_70b",
            "batch": "1/replica",
            "length": 4096,
        },
    }
    return config
