"""What a study of numerics computes with arrays: the suite's functions, and the same in float64.

Names of dimensions as in the modules that the functions are of; R rows, N width, K terms of a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from accel_bench.precision import PRECISIONS, Precision, lookup
from accel_bench.workloads.base import SkippedCase
from accel_bench.workloads.matmul import INT8_RANGE, multiply
from accel_bench.workloads.model import with_precision
from accel_bench.workloads.model_inputs import in_float64
from accel_bench.workloads.numerics_inputs import Operand, draw
from accel_bench.workloads.numerics_params import Numerics
from models.attention import attention
from models.layers import rms_norm
from models.sizes import SIZES, ModelConfig

MODEL = SIZES["tiny"]
_ROWS = 64
# Of a long sum so many terms over all rows, and of a long product so many rows and columns.
_SUMMED, _DOT_ROWS = 1 << 22, 8


@dataclass(frozen=True)
class Operation:
    """A function, its inputs and its reference.

    Attributes:
      run: from inputs to `forward` and `gradient`, trees of arrays; one of them may be missing.
      exact: the same in float64 on the host's CPU, from inputs in float64.
      draw: from a seed to the inputs as they are stored.
      terms: from inputs to the terms (R, K) that a sum of a row each is of, in the type they are
        summed up in; None where that is not what is studied.
    """

    run: Callable[..., Mapping[str, Any]]
    exact: Callable[..., Mapping[str, Any]]
    draw: Callable[[int], tuple]
    terms: Callable[..., np.ndarray] | None = None


def _require_own(op: str, precision: str) -> None:
    """Raises `SkippedCase` for an operation without a product that an earlier precision has too."""
    entry = lookup(precision)
    for name, other in PRECISIONS.items():
        same = other.compute == entry.compute and (op != "norm" or other.storage == entry.storage)
        if same and name != precision:
            raise SkippedCase(f"{op} has no product: in {precision} it is what it is in {name}")
        if same:
            return


def _with_gradient(function: Callable[..., jax.Array]) -> Callable[..., Mapping[str, Any]]:
    """The function with the gradient by its operands, for a cotangent that is the last argument."""

    def run(*arguments):
        *operands, cotangent = arguments
        out, back = jax.vjp(function, *operands)
        return {"forward": out, "gradient": back(cotangent.astype(out.dtype))}

    return run


def _drawing(operands: tuple[Operand, ...], values: str) -> Callable[[int], tuple]:
    def drawn(seed: int) -> tuple:
        rng = np.random.default_rng(seed)
        return tuple(draw(rng, operand, values) for operand in operands)

    return drawn


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of float64 arrays as jax runs it on the host's CPU; compiled once for a shape."""
    jitted = jax.jit(function)

    def run(*arguments):
        with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
            return jax.tree.map(np.asarray, jitted(*arguments))

    return run


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")


_exact_product = on_host(_with_gradient(_product))


def _matmul(params: Numerics, entry: Precision) -> Operation:
    """(N,N) x (N,N) as the workload `matmul` multiplies; of 8 bits no gradient."""
    _require_exponent(params, entry)
    n = params.size
    operands = (
        Operand((n, n), entry.storage, factors=2, terms=n),
        Operand((n, n), entry.storage, 0, factors=2, terms=n, role="other", partner=True),
    )
    run = partial(multiply, entry=entry)
    if jnp.dtype(entry.storage).itemsize == 1:
        return Operation(
            lambda a, b: {"forward": run(a, b)},
            lambda a, b: {"forward": a @ b},
            _stored_drawing(operands, params.range, entry),
        )
    cotangent = Operand((n, n), entry.output, role="exact")
    draw_all = _drawing((*operands, cotangent), params.range)
    return Operation(_with_gradient(run), _exact_product, draw_all)


def _require_exponent(params: Numerics, entry: Precision) -> None:
    if entry.quantised and params.range != "normal":
        raise SkippedCase("int8 has no exponent: operands of any range are scaled to the same one")


def _stored_drawing(
    operands: tuple[Operand, ...], values: str, entry: Precision
) -> Callable[[int], tuple]:
    """As `_drawing`; numbers for int8 are scaled to its range."""
    if not entry.quantised:
        return _drawing(operands, values)

    def drawn(seed: int) -> tuple:
        rng = np.random.default_rng(seed)
        numbers = (rng.standard_normal(o.shape, dtype=np.float32) for o in operands)
        return tuple(
            np.clip(np.rint(x * (127 / INT8_RANGE)), -127, 127).astype(np.int8) for x in numbers
        )

    return drawn


def _dot(params: Numerics, entry: Precision) -> Operation:
    """Few rows times few columns with many terms each: how are terms added up?"""
    _require_exponent(params, entry)
    k = params.size
    operands = (
        Operand((_DOT_ROWS, k), entry.storage, factors=2, terms=k),
        Operand((k, _DOT_ROWS), entry.storage, 0, factors=2, terms=k, role="other", partner=True),
    )
    wide = jnp.dtype(entry.accumulate)
    compute = jnp.dtype(entry.compute)

    def terms(a, b):
        a, b = (x.astype(compute).astype(wide) for x in (a, b.T))
        return a * b

    return Operation(
        lambda a, b: {"forward": multiply(a, b, entry)},
        lambda a, b: {"forward": a @ b},
        _stored_drawing(operands, params.range, entry),
        terms,
    )


def _sum(params: Numerics, config: ModelConfig) -> Operation:
    """Sums of rows, (R, K) -> (R,)."""
    k = params.size
    rows = max(8, min(_ROWS, _SUMMED // k))
    return Operation(
        lambda x_RK: {"forward": jnp.sum(x_RK, axis=1)},
        lambda x_RK: {"forward": x_RK.sum(axis=1)},
        _drawing((Operand((rows, k), config.dtype, terms=k),), params.range),
        lambda x_RK: x_RK,
    )


def softmax(x_RN: jax.Array, config: ModelConfig) -> jax.Array:
    """Softmax of rows as the model takes it: in fp32, and the result in the compute dtype."""
    return jax.nn.softmax(x_RN.astype(config.wide_dtype), axis=-1).astype(config.dtype)


@functools.cache
def _exact(function: Callable[..., jax.Array], config: ModelConfig) -> Callable[..., Any]:
    """A function that takes a config at last, with its gradient, in float64."""
    in_64 = in_float64(config)
    return on_host(_with_gradient(lambda *operands: function(*operands, in_64)))


def _tensor(
    function: Callable[..., jax.Array],
    config: ModelConfig,
    operands: tuple[Operand, ...],
    shape: tuple[int, ...],
    values: str,
) -> Operation:
    """A function of operands and config to one array of this shape, with its gradient."""
    cotangent = Operand(shape, config.dtype, role="exact")
    return Operation(
        _with_gradient(lambda *arguments: function(*arguments, config)),
        _exact(function, MODEL),
        _drawing((*operands, cotangent), values),
    )


def _softmax(params: Numerics, config: ModelConfig) -> Operation:
    shape = (_ROWS, params.size)
    return _tensor(softmax, config, (Operand(shape, config.dtype),), shape, params.range)


def _norm(params: Numerics, config: ModelConfig) -> Operation:
    shape = (_ROWS, params.size)
    scale = Operand((params.size,), config.param_dtype, role="exact")
    operands = (Operand(shape, config.dtype), scale)
    return _tensor(rms_norm, config, operands, shape, params.range)


def causal(q, k, v, config: ModelConfig) -> jax.Array:
    """The model's attention over as many keys as queries."""
    return attention(q, k, v, 0, config)


def _attention(params: Numerics, config: ModelConfig) -> Operation:
    heads, groups, head = config.num_kv_heads, config.queries_per_kv_head, config.head_size
    q_shape = (1, heads, groups, params.size, head)
    kv_shape = (1, heads, params.size, head)
    operands = (
        Operand(q_shape, config.dtype, factors=2, role="other"),
        Operand(kv_shape, config.dtype, factors=2, role="other", partner=True),
        Operand(kv_shape, config.dtype, axis=-2),
    )
    return _tensor(causal, config, operands, q_shape, params.range)


_OF_CONFIG: dict[str, Callable[[Numerics, ModelConfig], Operation]] = {
    "sum": _sum,
    "softmax": _softmax,
    "norm": _norm,
    "attention": _attention,
}

OPS = ("matmul", "dot", *_OF_CONFIG)


def operation(params: Numerics, precision: str) -> Operation:
    """One of `OPS` in a precision.

    Raises:
      UnsupportedCase: the operation has no meaning in this precision.
      SkippedCase: it is the same in another precision, or in another range.
    """
    if params.op == "matmul":
        return _matmul(params, lookup(precision))
    if params.op == "dot":
        return _dot(params, lookup(precision))
    config = with_precision(MODEL, precision)
    if params.op in ("sum", "softmax", "norm"):
        _require_own(params.op, precision)
    return _OF_CONFIG[params.op](params, config)
