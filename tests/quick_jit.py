"""A `jax.jit` for tests: what it compiles is soon there, and computes and sends the same."""

from functools import partial
from typing import Any

import jax

jit: Any = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
