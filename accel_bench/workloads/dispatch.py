"""What it costs to launch a program that computes nothing to speak of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.workloads.base import Workload, fetch, place, sharding
from accel_bench.workloads.params import Dispatch


def build(params: Dispatch, precision: str, mesh: Mesh) -> Workload:
    """Adds 1 to a scalar, each call on the result of the one before."""
    del precision
    where = sharding(mesh)

    def increment(x):
        return x + 1

    return Workload(
        fn=increment,
        inputs=(jax.ShapeDtypeStruct((), jnp.float32, sharding=where),),
        init=lambda seed: ((place(np.float32(seed), where),), seed + 1.0),
        work={},
        feed=lambda args, out: (out,),
        block_each=params.mode == "blocking",
        error=lambda expected, out: abs(float(fetch(out)) - expected),
        facts={"mode": params.mode},
    )
