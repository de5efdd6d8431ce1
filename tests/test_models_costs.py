"""Analytic costs against what the program holds: every dot of its jaxpr, every leaf's bytes."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import costs
from models.inference import abstract_cache, decode_step, prefill
from models.sizes import SIZES
from models.train_step import abstract_train_state, forward, train_step

BATCH, LENGTH = 2, 32
TINY = SIZES["tiny"]
CONFIGS = {
    "grouped, swiglu, untied": TINY,
    "gelu, tied": dataclasses.replace(TINY, num_kv_heads=4, activation="gelu", tied_embedding=True),
    "unrolled": dataclasses.replace(TINY, scan_layers=False),
}


def sub_jaxprs(eqn):
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            item = getattr(item, "jaxpr", item)  # a closed one holds an open one
            if hasattr(item, "eqns"):
                yield item


def dot_flops(jaxpr) -> int:
    """FLOPs of all dots of a jaxpr; a scan's body counts as often as it runs."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracting, _), _ = eqn.params["dimension_numbers"]
            lhs = eqn.invars[0].aval.shape
            out = math.prod(eqn.outvars[0].aval.shape)
            total += 2 * out * math.prod(lhs[d] for d in contracting)
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        total += times * sum(dot_flops(sub) for sub in sub_jaxprs(eqn))
    return total


def leaf_bytes(tree) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def tokens(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_flops_equal_the_dots_of_the_program(config):
    state = abstract_train_state(config)
    cache = abstract_cache(config, BATCH, LENGTH)

    def counted(step, *args):
        return dot_flops(jax.make_jaxpr(partial(step, config))(*args).jaxpr)

    assert counted(forward, state.params, tokens(BATCH, LENGTH)) == costs.forward_flops(
        config, BATCH, LENGTH
    )
    assert counted(train_step, state, tokens(BATCH, LENGTH + 1)) == costs.train_flops(
        config, BATCH, LENGTH
    )
    assert counted(prefill, state.params, cache, tokens(BATCH, LENGTH)) == costs.prefill_flops(
        config, BATCH, LENGTH
    )
    assert counted(decode_step, state.params, cache, tokens(BATCH), tokens()) == costs.decode_flops(
        config, BATCH, LENGTH
    )


def test_flops_agree_with_the_compilers_count():
    config = dataclasses.replace(TINY, width=256, mlp_width=1024, head_size=64, scan_layers=False)
    params = abstract_train_state(config).params
    compiled = jax.jit(partial(forward, config)).lower(params, tokens(4, 64)).compile()
    analysis = compiled.cost_analysis()
    assert analysis is not None
    assert analysis["flops"] == pytest.approx(costs.forward_flops(config, 4, 64), rel=0.02)


def test_recomputation_is_not_counted_though_it_happens():
    config = dataclasses.replace(TINY, remat="full")
    state = abstract_train_state(config)
    program = jax.make_jaxpr(partial(train_step, config))(state, tokens(BATCH, LENGTH + 1))
    assert costs.train_flops(config, BATCH, LENGTH) == costs.train_flops(TINY, BATCH, LENGTH)
    assert dot_flops(program.jaxpr) > costs.train_flops(config, BATCH, LENGTH)


def test_train_flops_follow_the_palm_convention():
    config = SIZES["llama2_7b"]
    tokens_, length = 4 * 4096, 4096
    attention = 12 * config.num_layers * config.num_heads * config.head_size * length
    norms = (2 * config.num_layers + 1) * config.width
    n = costs.param_count(config) - norms - config.vocab_size * config.width
    assert costs.train_flops(config, 4, length) == tokens_ * (6 * n + attention)
    assert costs.train_flops(config, 4, length, causal=True) == tokens_ * (6 * n + attention // 2)


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_state_bytes_equal_the_leaves(param_dtype: str):
    config = dataclasses.replace(TINY, param_dtype=param_dtype)
    state = abstract_train_state(config)
    assert leaf_bytes(state) == costs.train_state_bytes(config)
    assert leaf_bytes(state.params) == costs.param_bytes(config)
    with pytest.raises(ValueError, match="sgd"):
        costs.train_state_bytes(config, "sgd")


def test_cache_bytes_equal_the_leaves():
    config = dataclasses.replace(SIZES["llama3_8b"], dtype="bfloat16")
    assert leaf_bytes(abstract_cache(config, 3, 100)) == costs.kv_cache_bytes(config, 3, 100)


def test_decoding_reads_what_it_multiplies_with():
    config = dataclasses.replace(SIZES["llama2_7b"], dtype="bfloat16", param_dtype="bfloat16")
    # One sequence, an empty cache: two FLOPs for each two-byte weight, but for the norms' scales.
    flops, traffic = costs.decode_flops(config, 1, 0), costs.decode_bytes(config, 1, 0)
    assert flops == pytest.approx(traffic, rel=1e-4)
    grown = costs.decode_bytes(config, 1, 1000) - traffic
    assert grown == costs.kv_cache_bytes(config, 1, 1000)


def test_activation_bytes_reproduce_the_papers_table():
    # arXiv 2205.05198, section 4.1: GPT-3 (a=96, s=2048, h=12288): 5 a s / h = 80, so 34 + 80.
    config = SIZES["gpt3_175b"]
    per_layer = costs.activation_bytes(config, 1, 2048) / config.num_layers
    assert per_layer == 2048 * 12_288 * (34 + 80)
    full = dataclasses.replace(config, remat="full")
    assert costs.activation_bytes(full, 1, 2048) == 96 * 2 * 2048 * 12_288
    with pytest.raises(ValueError, match="dots"):
        costs.activation_bytes(dataclasses.replace(config, remat="dots"), 1, 2048)


def test_dtype_bytes_are_the_real_ones():
    from models.sizes import DTYPE_BYTES

    for name, size in DTYPE_BYTES.items():
        assert np.dtype(jnp.dtype(name)).itemsize == size
