"""One matrix product for every chip that there is a compiler for; nothing is measured.

    python main.py run --config=configs/compile_matmul.py

Expect the compiler's own estimate to lie a little above the roofline bound on TPUs for the large
product and far above it for the small one, which does not fill the matrix units.
"""

from accel_bench.chips import CHIPS
from accel_bench.config import base
from accel_bench.target import can_compile_for


def every_chip():
    """One chip of each kind, TPUs first."""
    for platform, layout in (("tpu", "1x1"), ("gpu", "1")):
        for name, chip in CHIPS.items():
            if can_compile_for(chip, platform):
                yield f"{platform}:{name}:{layout + 'x1' * (len(chip.largest) == 3)}"


def get_config():
    config = base("compile_matmul")
    config.device = "none"
    config.targets = tuple(every_chip())
    config.precision = ("bf16",)
    config.cases = {"square": {"workload": "matmul", "shape": ("1024", "8192")}}
    return config
