"""The claims: what is often said about GPUs and TPUs, and what tests each of them.

To add one, add an entry here and a function that judges it from the rows of a report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accel_bench.claims import hardware, networks, programs, sizes, speed
from accel_bench.claims.rows import Rows
from accel_bench.claims.verdict import Claim, Part

_RUN = "python main.py run --config=configs/"
_CLAIMS = f"{_RUN}claims.py"
_ON_GPU = f"{_CLAIMS} --device=gpu"
_COMPILED = programs.WITH_TARGETS

CLAIMS = (
    Claim(
        1, "Multiplying two 10000 x 10000 matrices: a GPU against one thread of a CPU",
        "120 s, 0.8 s, 150 times", (f"{_CLAIMS} --baselines=numpy_1thread", _ON_GPU),
    ),
    Claim(
        2, "A GPU trains tens to hundreds of times as fast as a CPU",
        "10 to over 100 times", (_CLAIMS, _ON_GPU),
    ),
    Claim(
        3, "HBM2 moves far more per second than DDR4, and sooner",
        "50 GB/s, 100 ns; 1.5 TB/s, 10 ns; 30 times", (_CLAIMS, f"{_RUN}memory.py"),
    ),
    Claim(
        4, "Memory that GPT-3's 175 billion parameters take",
        "700 GB fp32, 280 GB mixed", (f"{_RUN}gpt3_175b.py",),
    ),
    Claim(
        5, "Memory of LLaMA-2 70B, and the cards that train it",
        "280 GB fp32, 112 GB mixed, 4 A100", (f"{_RUN}llama2_70b.py --find_smallest_fit",),
    ),
    Claim(
        6, "Tensor Cores lift an A100 from its plain fp32 rate",
        "19.5 to 312 TFLOP/s", (f"{_ON_GPU} --precision=fp32,tf32,bf16",),
    ),
    Claim(
        7, "An A100 has thousands of cores, a CPU a few",
        "6912; 4 to 16", ("python main.py list chips",),
    ),
    Claim(
        8, "A GPU computes while data is under way, so that transfers are hidden",
        "", (f"{_RUN}transfer.py --device=gpu", _COMPILED),
    ),
    Claim(
        9, "NVLink joins the GPUs of a host, GPUDirect RDMA those of several",
        "600 GB/s both ways", (f"{_RUN}collectives.py --device=gpu --mesh=data:8",),
    ),
    Claim(
        10, "Training in mixed precision takes less memory and less time",
        "", (_CLAIMS, f"{_RUN}precisions.py"),
    ),
    Claim(
        11, "A TPU's matrix unit takes a whole batch of handwritten digits at once",
        "100 images", (_COMPILED, f"{_RUN}digits.py --device=tpu"),
    ),
    Claim(
        12, "A TPU pipelines loading, computing and storing; on-chip memory spares transfers",
        "", (_COMPILED, f"{_RUN}compile_model.py"),
    ),
    Claim(
        13, "Data parallel on 4 nodes, a slow network makes them wait for each other's gradients",
        "", (f"{_RUN}network_short.py --device=cpu", f"{_RUN}network.py --device=cpu"),
    ),
    Claim(
        14, "Compressing gradients and updating asynchronously relieve the network",
        "", (f"{_RUN}network_short.py --device=cpu", f"{_RUN}network_learning.py --device=cpu"),
    ),
    Claim(
        15, "Larger models need hundreds to thousands of devices, and more time and energy",
        "a table that is not legible", (f"{_RUN}gpt3_175b.py", f"{_RUN}llama2_70b.py"),
    ),
    Claim(
        16, "V100 and A100 train, T4 and P40 serve at low power, RTX 3080 and 3090 prototype",
        "roles", ("python main.py list chips",),
    ),
    Claim(
        17, "Tables of GPU and TPU models by cores, memory, bandwidth, peak and power",
        "not legible", ("python main.py list chips",),
    ),
    Claim(
        18, "Under a framework cuBLAS multiplies, cuDNN convolves and attends, NCCL communicates",
        "", (_COMPILED, f"{_RUN}attention.py --device=gpu"),
    ),
    Claim(
        19, "JAX takes one code to GPU and TPU back ends",
        "", (_COMPILED, f"{_RUN}claims.py --device=tpu"),
    ),
    Claim(
        20, "Compressed models and lower precision take less of everything",
        "", (_CLAIMS, f"{_RUN}precisions.py"),
    ),
)  # fmt: skip

JUDGES: dict[int, Callable[[Rows], Sequence[Part]]] = {
    1: speed.matrix_products,
    2: speed.training,
    3: hardware.memory,
    4: sizes.gpt3,
    5: sizes.llama2,
    6: speed.matrix_units,
    7: hardware.cores,
    8: programs.overlap,
    9: hardware.links,
    10: speed.mixed_precision,
    11: programs.digits_at_once,
    12: programs.pipelines,
    13: networks.waiting,
    14: networks.relief,
    15: sizes.large_models,
    16: hardware.roles,
    17: hardware.tables,
    18: programs.libraries,
    19: programs.one_code,
    20: speed.quantised,
}
