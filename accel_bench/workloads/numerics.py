"""How exact results are, and what is lost at the ends of a format.

Results and gradients are compared with float64 on the host, from the very inputs that the device
has, so that an error here is that of the computation and not of the rounding of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from accel_bench import accuracy
from accel_bench.precision import lookup
from accel_bench.workloads import numerics_model, numerics_ops
from accel_bench.workloads.base import Study, fetch, place, sharding
from accel_bench.workloads.numerics_ops import Operation
from accel_bench.workloads.numerics_params import Numerics

# Powers of 2 that the loss is multiplied by.
SCALES = tuple(2.0**power for power in range(25))


def build(params: Numerics, precision: str, mesh: Mesh) -> Study:
    """One operation in one precision, for inputs of one range.

    Raises:
      UnsupportedCase: the operation has no meaning in this precision.
      SkippedCase: it is the same in another precision, or in another range.
    """
    chosen = operation(params, precision)
    where = sharding(mesh)

    def init(seed: int) -> tuple[tuple, tuple]:
        stored = chosen.draw(seed)
        return jax.tree.map(lambda x: place(x, where), stored), stored

    def examine(call: Any, args: tuple, out: Any, stored: tuple) -> Mapping[str, Any]:
        exact = chosen.exact(*jax.tree.map(_exactly, stored))
        if params.op == "loss_scale":
            return _facts(_at_scales(call, args, out, exact))
        return _facts(_of_result(chosen, stored, out, exact))

    return Study(
        key=("numerics", params.op, params.size, precision, mesh.devices.flat[0]),
        fn=chosen.run,
        init=init,
        examine=examine,
        facts={
            "inputs": {"distribution": f"normal, {params.range}", "checked": "all of the result"},
            "compute_dtype": lookup(precision).compute,
            **({"error_of": "gradient"} if params.op in ("gradient", "loss_scale") else {}),
        },
    )


def operation(params: Numerics, precision: str) -> Operation:
    """What a case computes; raises as `build` does."""
    where = numerics_model if params.op in numerics_model.OPS else numerics_ops
    return where.operation(params, precision)


def _exactly(x: np.ndarray) -> np.ndarray:
    """Numbers in float64, tokens as they are."""
    return x if x.dtype == np.int32 else x.astype(np.float64)


def _facts(found: dict[str, Any]) -> dict[str, Any]:
    """The study's facts, and the one error that stands for them in tables."""
    forward, gradient = found.get("forward"), found.get("gradient")
    told = gradient if forward is None or (gradient and forward["count"] == 1) else forward
    assert told is not None
    return {"numerics": found, "error": told["error"]}


def _errors(out: Any, exact: Any) -> dict[str, Any]:
    results = [fetch(leaf) for leaf in jax.tree.leaves(out)]
    return accuracy.errors(results, jax.tree.leaves(exact))


def _of_result(chosen: Operation, stored: tuple, out: Any, exact: Any) -> dict[str, Any]:
    found: dict[str, Any] = {name: _errors(out[name], exact[name]) for name in out}
    if chosen.terms:
        found["orders"] = accuracy.order_errors(chosen.terms(*stored))
    return found


def _at_scales(call: Any, args: tuple, out: Any, exact: Any) -> dict[str, Any]:
    """The gradient at each scale of the loss, divided by it again."""
    whole = _flat(jax.tree.leaves(exact["gradient"]))
    scaled = [_flat(map(fetch, jax.tree.leaves(out["gradient"])))]
    for scale in SCALES[1:]:
        given = place(np.float32(scale), args[-1].sharding)
        found = jax.tree.leaves(call(*args[:-1], given)["gradient"])
        scaled.append(_flat(map(fetch, found)) / scale)
    return {
        "gradient": _errors(out["gradient"], exact["gradient"]),
        "scales": scale_figures(SCALES, scaled, whole),
    }


def _flat(leaves: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([leaf.astype(np.float64).ravel() for leaf in leaves])


def scale_figures(
    scales: Sequence[float], results: Sequence[np.ndarray], exact: np.ndarray
) -> list[dict[str, Any]]:
    """What became of a gradient at each scale of the loss.

    Args:
      scales: what the loss was multiplied by.
      results: the gradient for each of them, divided by it again.
      exact: the gradient in float64.

    Returns:
      For each scale the share of the gradient that is `zeroed`: 0 here, and something else at
      another scale (what is 0 at all of them has cancelled, and no scale helps); how many numbers
      are `nonfinite`; and the relative `error` of the others.
    """
    ever = np.zeros(exact.shape, bool)
    for result in results:
        ever |= np.isfinite(result) & (result != 0)
    ever &= exact != 0
    rows = []
    for scale, result in zip(scales, results, strict=True):
        finite = np.isfinite(result)
        size = np.linalg.norm(exact[finite])
        error = float(np.linalg.norm((result - exact)[finite]) / size) if size else None
        rows.append(
            {
                "scale": scale,
                "zeroed": float(np.sum(ever & (result == 0)) / max(1, np.sum(ever))),
                "nonfinite": int(np.sum(~finite)),
                "error": error,
            }
        )
    return rows
