"""Matrix products and convolutions: which instructions they are, and how many FLOPs they take."""

from __future__ import annotations

import math
import re
from typing import Any

from accel_bench.hlo.kinds import call_target
from accel_bench.hlo.runs import Run, Tally, sum_over_runs
from accel_bench.hlo.shapes import Shape, integers
from accel_bench.hlo.text import Computation, Instruction

_PRODUCTS = ("dot", "convolution", "ragged-dot", "scaled-dot")
# A library's product of two matrices, its first two operands.
_LIBRARY_PRODUCT = re.compile(r"gemm|matmul|(?:\b|_)dot|cudnn\$conv", re.IGNORECASE)
# A kernel that may hold products which the text does not show.
_OPAQUE = re.compile(r"fmha|attention|mosaic|triton|tpu_custom_call|pallas|cutlass", re.IGNORECASE)


def is_product(instruction: Instruction) -> bool:
    """Whether it is a dot, a convolution, or a library's matrix product or convolution."""
    library = _LIBRARY_PRODUCT.search(call_target(instruction))
    return instruction.opcode in _PRODUCTS or library is not None


def operand_types(computation: Computation, instruction: Instruction) -> list[str]:
    """Element types (HLO names) of a product's two operands, as far as the text tells them."""
    found = computation.operand_shapes(instruction)[:2]
    return [arrays[0].element_type for arrays in found if arrays]


def _elements_along(shape: Shape, indices: tuple[int, ...]) -> int | None:
    """Product of some dimensions' sizes; None if there is no such dimension."""
    if any(not 0 <= index < len(shape.dims) for index in indices):
        return None
    return math.prod(shape.dims[index] for index in indices)


def valid_positions(
    output: int, kernel: int, size: int, stride: int, low: int, base: int, dilation: int
) -> int:
    """Pairs of an output and a kernel position, along one dimension, that meet an input element.

    As XLA's HloCostAnalysis counts them: not those that fall on padding, nor between the elements
    of an input spread out by `base`.

    Args:
      output, kernel, size: positions of output, kernel and input.
      stride: of the window.
      low: padding in front.
      base: distance of the input's elements (lhs_dilate).
      dilation: distance of the kernel's elements (rhs_dilate).
    """
    common = math.gcd(stride, base)
    period = base // common
    inverse = pow(stride // common, -1, period)
    found = 0
    for index in range(kernel):
        offset = index * dilation - low
        first = max(0, -(offset // stride))
        last = min(output - 1, ((size - 1) * base - offset) // stride)
        if last < first or offset % common:
            continue
        rest = -(offset // common) * inverse % period
        found += (last - rest) // period - (first - 1 - rest) // period
    return found


def _window(text: str, spatial: int) -> list[tuple[int, int, int, int]] | None:
    """(stride, padding in front, base dilation, kernel dilation) of each spatial dimension."""
    pairs = (part.partition("=") for part in text.strip("{}").split())
    parts = {name: value for name, _, value in pairs}

    def numbers(name: str, default: str) -> list[int]:
        return [integers(part)[0] for part in parts.get(name, default).split("x")]

    try:
        columns = [
            numbers("stride", "x".join(["1"] * spatial)),
            numbers("pad", "x".join(["0_0"] * spatial)),
            numbers("lhs_dilate", "x".join(["1"] * spatial)),
            numbers("rhs_dilate", "x".join(["1"] * spatial)),
        ]
    except IndexError:
        return None
    if any(len(column) != spatial for column in columns):
        return None
    return list(zip(*columns, strict=True))


def _convolution(instruction: Instruction, lhs: Shape, rhs: Shape, out: Shape) -> int | None:
    """Multiply-adds of one run, as XLA's HloCostAnalysis counts them.

    None if an attribute is not clear.
    """
    labels = re.fullmatch(
        r"([bf?\d]+)_([io?\d]+)->([bf?\d]+)", instruction.attribute("dim_labels") or ""
    )
    if labels is None or any(
        len(text) != len(shape.dims)
        for text, shape in zip(labels.groups(), (lhs, rhs, out), strict=True)
    ):
        return None
    spatial = sorted(set(labels[1]) - set("bf?"))
    places = [[text.find(s) for s in spatial] for text in labels.groups()]
    plain = labels[1].find("b"), labels[1].find("f"), labels[3].find("f")
    window = _window(instruction.attribute("window") or "", len(spatial)) if spatial else []
    features = integers(instruction.attribute("feature_group_count") or "1")
    batches = integers(instruction.attribute("batch_group_count") or "1")
    if window is None or min((*plain, *(i for place in places for i in place))) < 0:
        return None
    if not features or not batches or min(features[0], batches[0]) < 1:
        return None
    valid = 1
    for (stride, low, base, dilation), i, k, o in zip(window, *places, strict=True):
        if min(stride, base, dilation) < 1 or rhs.dims[k] > 1 << 20:
            return None
        valid *= valid_positions(out.dims[o], rhs.dims[k], lhs.dims[i], stride, low, base, dilation)
    batch, feature, result = lhs.dims[plain[0]], lhs.dims[plain[1]], out.dims[plain[2]]
    return (feature // features[0]) * result * (batch // batches[0]) * valid


def _library(instruction: Instruction, lhs: Shape, rhs: Shape, out: Shape) -> int | None:
    """Multiply-adds of one run of a library's product; None if the text does not tell."""
    called = call_target(instruction)
    if "cudnn$conv" in called:
        # The attributes describe the forward product: input, kernel, output.
        if "BackwardInput" in called:
            return _convolution(instruction, out, rhs, lhs)
        if "BackwardFilter" in called:
            return _convolution(instruction, lhs, out, rhs)
        return _convolution(instruction, lhs, rhs, out)
    found = re.search(r"lhs_contracting_dimensions\W+((?:\d+\W+)+)", instruction.attributes)
    results = math.prod(out.dims)
    if found:
        inner = _elements_along(lhs, integers(found[1]))
        return None if inner is None else results * inner
    # b m k times b k n over b m n is b k^2.
    if min(len(lhs.dims), len(rhs.dims), len(out.dims)) < 2 or not results:
        return None
    batch = math.prod(rhs.dims[:-2])
    square, rest = divmod(math.prod((*lhs.dims, *rhs.dims)), results * batch or 1)
    inner = math.isqrt(square)
    return None if rest or inner * inner != square else results * inner


def _multiply_adds(instruction: Instruction, lhs: Shape, rhs: Shape, out: Shape) -> int | None:
    """Those of one run of a product; None if the text does not tell."""
    if instruction.opcode == "dot":
        inner = _elements_along(lhs, integers(instruction.attribute("lhs_contracting_dims") or ""))
        return None if inner is None else math.prod(out.dims) * inner
    if instruction.opcode == "convolution":
        return _convolution(instruction, lhs, rhs, out)
    return _library(instruction, lhs, rhs, out) if instruction.opcode == "custom-call" else None


def product_flops(computation: Computation, instruction: Instruction) -> int | None:
    """FLOPs of one run of a product; None if the text does not tell.

    2 per multiply-add; 8 of complex numbers: 4 multiplications and 4 additions.
    """
    found = computation.operand_shapes(instruction)
    if len(found) < 2 or not found[0] or not found[1] or not instruction.shapes:
        return None
    lhs, rhs, out = found[0][0], found[1][0], instruction.shapes[0]
    if None in (lhs.elements, rhs.elements, out.elements):
        return None
    amount = _multiply_adds(instruction, lhs, rhs, out)
    complexes = sum(shape.element_type in ("c64", "c128") for shape in (lhs, rhs))
    return None if amount is None else amount * (2 << complexes)


def find_products(all_runs: list[Run], unknown: list[str]) -> dict[str, Any]:
    """Products of one call of the program.

    Returns:
      flops: as `product_flops` counts them; None if those of one product, or of a kernel whose
        inside the text does not show, cannot be told.
      flops_by_type: operands' HLO type, as `bf16` or `bf16xf32`, -> FLOPs; None where `flops` is.
      products: opcode or custom call -> `static`, how many the text has, and `executed`, how often
        they run.
    """
    by_type: dict[str, list[tuple[int | None, Run]]] = {}
    kinds = Tally()
    clear = True
    for run in all_runs:
        called = call_target(run.instruction)
        if is_product(run.instruction):
            types = operand_types(run.computation, run.instruction)
            name = "x".join(dict.fromkeys(types)) or "?"
            amount = product_flops(run.computation, run.instruction)
            by_type.setdefault(name, []).append((amount, run))
            kinds.add(called or run.instruction.opcode, run)
        elif _OPAQUE.search(called):
            unknown.append(f"flops: the text does not show what custom call {called} computes")
            clear = False
    totals = {name: sum_over_runs(iter(parts), unknown, "flops") for name, parts in by_type.items()}
    known = {name: total for name, total in totals.items() if total is not None}
    clear = clear and len(known) == len(totals)
    return {
        "flops": sum(known.values()) if clear else None,
        "flops_by_type": known if clear else None,
        "products": kinds.counts,
    }
