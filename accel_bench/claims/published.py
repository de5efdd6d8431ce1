"""Figures that claims are held against and that the chip table does not have, each with its source.

Nothing here was measured by this suite.
"""

from __future__ import annotations

from dataclasses import dataclass

GPU_LATENCY_SOURCE = "Abdelkhalik et al. 2022, arXiv 2208.11174, table IV"
# Cycles from a dependent load to its value, on an A100.
A100_LATENCY_CYCLES = {"global memory": 290, "L2 cache": 200, "L1 cache": 33}

ZERO_SOURCE = "ZeRO, arXiv 1910.02054, section 3.1"
# Weight, gradient and AdamW's two moments: in fp32 4 + 4 + 8; in mixed precision 2 + 2 in 16 bits
# and 12 in fp32 (weight and moments).
TRAINING_BYTES = 16

SYSTOLIC_SOURCE = "Jouppi et al. 2017, arXiv 1704.04760, section 2"
DDR4_SOURCE = "JEDEC JESD79-4: DDR4-3200"
NCCL_SOURCE = "openxla/xla, xla/backends/gpu/collectives/nccl_communicator.cc"
SPARSITY_SOURCE = "the vendor's datasheet of the A100"
EPYC_SOURCE = "the vendor's datasheet of the AMD EPYC 9965"
EPYC_CORES = 192
MEGATRON_SOURCE = "Narayanan et al. 2021, arXiv 2104.04473, section 5.1"


@dataclass(frozen=True)
class Run:
    """How a known model was trained.

    Attributes:
      model: its name in `models.sizes.SIZES`.
      tokens: that it was trained on.
      source: of the tokens.
      gpu_hours: as published; None where they are not.
      gpu: what hours they are, a name in the chip table.
    """

    model: str
    tokens: float
    source: str
    gpu_hours: float | None = None
    gpu: str = ""


RUNS = (
    Run("gpt3_175b", 300e9, "arXiv 2005.14165, table 2.1"),
    Run("llama2_7b", 2e12, "arXiv 2307.09288, tables 1 and 2", 184_320, "a100_80"),
    Run("llama2_70b", 2e12, "arXiv 2307.09288, tables 1 and 2", 1_720_320, "a100_80"),
)
