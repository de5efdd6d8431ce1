"""The precision table: what each name stores, multiplies, accumulates and may get wrong.

This module does not import jax, so that a request can be checked before any back end starts. To
add a precision, add one entry to `PRECISIONS`.

The error bounds are for the relative Frobenius error of a matrix product of normally distributed
inputs against float64, with the rounding of the inputs to the storage type counted in. They are
about three times what correct hardware shows for inner dimensions up to 16384, and far below the
error of the next coarser format, so that a result outside its bound is either wrong or was
computed in another precision than the one asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from accel_bench.errors import unknown


@dataclass(frozen=True)
class Precision:
    """One way to store and multiply numbers.

    Attributes:
      storage: dtype of the operands in memory.
      compute: dtype that the operands are cast to before the multiplication.
      accumulate: dtype asked for as the product's element type.
      output: dtype of the result in memory.
      dot: `None` (the back end's default), a `jax.lax.Precision` name in lower case, or a
        `jax.lax.DotAlgorithmPreset` name in upper case.
      unit: hardware unit that the name stands for, a key of `Chip.peaks`.
      passes: products in that unit that make up one product in this precision.
      max_error: largest relative error that an honest result has (see the module's text).
    """

    storage: str
    compute: str
    accumulate: str
    output: str
    dot: str | None
    unit: str
    max_error: float
    passes: int = 1

    @property
    def quantised(self) -> bool:
        """Whether operands are scaled to the range of an integer before they are stored."""
        return self.storage == "int8"

    @property
    def bits(self) -> int:
        """Bits of an operand as it is stored: 8, 16 or 32."""
        return 8 if self.unit in ("int8", "fp8") else 16 if self.storage in (BF16, F16) else 32


F32, BF16, F16 = "float32", "bfloat16", "float16"
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"

PRECISIONS: dict[str, Precision] = {
    # Really fp32 on every back end: HIGHEST switches off TF32 on GPUs and bf16 passes on TPUs.
    "fp32": Precision(F32, F32, F32, F32, "highest", "fp32", 2e-5),
    # What the back end does when nobody asks; the measured error tells which precision that was.
    "fp32_default": Precision(F32, F32, F32, F32, None, "fp32", 1e-2),
    "tf32": Precision(F32, F32, F32, F32, "TF32_TF32_F32", "tf32", 2e-3),
    "bf16": Precision(BF16, BF16, F32, BF16, None, "bf16", 1e-2),
    "bf16_3x": Precision(F32, F32, F32, F32, "BF16_BF16_F32_X3", "bf16", 1e-4, passes=3),
    "fp16": Precision(F16, F16, F32, F16, None, "fp16", 2e-3),
    # fp32 in memory, bf16 in the multiplier: what mixed-precision training does.
    "mixed_bf16": Precision(F32, BF16, F32, F32, None, "bf16", 1e-2),
    # The same in fp16; a train step scales its loss, as gradients are small (models/loss_scaling).
    "mixed_fp16": Precision(F32, F16, F32, F32, None, "fp16", 2e-3),
    # Eight bits: of a model, in inference, products with weights, scaled (models/quantised.py).
    "fp8_e4m3": Precision(E4M3, E4M3, F32, BF16, None, "fp8", 0.1),
    "fp8_e5m2": Precision(E5M2, E5M2, F32, BF16, None, "fp8", 0.2),
    "int8": Precision("int8", "int8", "int32", "int32", None, "int8", 0.05),
}


def lookup(name: str) -> Precision:
    """The table's entry of this name; raises `RequestError` for a name that is not in it."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    return PRECISIONS[name]


def delivered(error: float) -> str:
    """The format whose rounding a relative error of a product looks like.

    It is read off the error alone, so it names the coarsest step in the computation: bf16 keeps
    8 bits of a value, TF32 and fp16 11, fp32 24.
    """
    for bound, name in ((2e-5, "fp32"), (1.2e-3, "tf32/fp16"), (1.2e-2, "bf16")):
        if error <= bound:
            return name
    return "8 bits or fewer"
