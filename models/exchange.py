"""Data-parallel training whose exchange between replicas is written out, to be given to `jax.jit`.

Every device holds a whole replica of the model and a part of the batch; the mesh's only axis (of
more than one device) is `data`. What `models.train_step` leaves to the compiler, the mean of the
replicas' gradients, is a choice here, see `Exchange`:

    exchange = Exchange("int8", accumulate=4)
    step = jax.jit(partial(train_step, config, exchange, mesh=mesh), donate_argnums=0)
    state = create_state(config, exchange, weights, mesh)
    state, metrics = step(state, tokens)

Other axes are refused. XLA's partitioner aborts the process (`ExpandDeviceGroupsWithIota`, jax
0.10 and 0.12) on a model that is divided inside of a replica, unless every activation is pinned.

How the compressed formats find the mean. XLA's CPU back end widens a bf16 all-reduce to fp32, and
no back end sums codes that each have a scale of their own. So the sum is taken by hand, in fp32.
Replica r of n lays its gradients out as one vector, padded with zeros to n equal parts, and part p
belongs to replica p. With Q(x) what is left of x once encoded and decoded:

    u_r = gradient_r + e_r               e_r: the residual of replica r, 0 without error feedback
    m[p] = (1/n) sum_r Q(u_r)[p]         codes by all-to-all; summed by the owner of part p
    mean = Q(m)                          codes by all-gather; the same on every replica

bf16 rounds to the nearest, an error of at most 2^-9 of each value per encoding. int8 divides each
block of 2048 values by its scale s = max|x| / 127 and rounds to the nearest whole number, an error
of at most s/2 per encoding; it keeps what was lost for the next step (error feedback, arXiv
1901.09847), the owner of a part also what the second encoding lost of it. That is an error of the
mean, so in one replica's gradient it counts n-fold:

    e_r = u_r - Q(u_r) + n (m - Q(m))    the last term in the part that r owns only

Two replicas send each other all of their codes instead, which is as many bytes: the mean is then
encoded by nobody, and the last term is not there.

So mean(u) = mean + mean(e): nothing is lost, only late. Summed over steps the exchanged
gradients differ from the true ones by no more than the last residual.

Names of dimensions: n replicas, N length of the padded vector, S = N / n that of one part.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.costs import param_count
from models.exchange_options import SCALED_BLOCK, Exchange, padded_length
from models.sizes import ModelConfig
from models.train_step import (
    Params,
    TrainState,
    Update,
    abstract_train_state,
    apply_gradients,
    loss_fn,
    state_shardings,
    state_with,
)

_OWN = PartitionSpec("data")  # one entry per replica along the leading axis
_EQUAL = PartitionSpec()  # the same on every replica

Codes = tuple[jax.Array, ...]  # what travels of an array: bf16 (codes,), int8 (codes, scales)


class ExchangeState(NamedTuple):
    """A `TrainState`, equal on all replicas, and what their encodings have lost so far."""

    step: Any  # int32, optimizer steps taken
    params: Any
    opt_state: Any
    residual: Any  # (n, N) fp32, one row per replica, for int8; () for other formats


class Pieces(NamedTuple):
    """One step in three functions, each to be jitted alone or all in one."""

    compute: Callable  # (state, tokens) -> (own, losses): trees with a leading replica axis
    exchange: Callable  # (own, residual) -> (mean, residual)
    update: Callable  # (state, mean) -> state


def abstract_state(config: ModelConfig, exchange: Exchange, mesh: Mesh) -> ExchangeState:
    """The state as `ShapeDtypeStruct`s with shardings; the mesh may be of described devices."""
    residual = ()
    if exchange.format == "int8":
        replicas = mesh.shape["data"]
        shape = (replicas, padded_length(exchange, param_count(config), replicas))
        sharding = NamedSharding(mesh, PartitionSpec("data", None))
        residual = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    return ExchangeState(*abstract_train_state(config, mesh), residual)


def create_state(
    config: ModelConfig, exchange: Exchange, weights: Params, mesh: Mesh
) -> ExchangeState:
    """The state before the first step, with these weights, whose buffers it takes over."""
    state = state_with(config, weights, mesh)
    residual = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
        abstract_state(config, exchange, mesh).residual,
    )
    return ExchangeState(state.step, state.params, state.opt_state, residual)


def train_step(
    config: ModelConfig,
    exchange: Exchange,
    state: ExchangeState,
    tokens: jax.Array,
    *,
    mesh: Mesh,
    predicted: int | None = None,
    **update: Unpack[Update],
) -> tuple[ExchangeState, dict[str, jax.Array]]:
    """One exchange between replicas, after as many local steps as `exchange` says.

    Args:
      tokens: (B, T+1), B sequences for all replicas, micro-batches and local steps together.
      predicted, update: as in `models.train_step.train_step`.

    Returns:
      The new state, with the structure, dtypes and shardings of the old one, which may be donated;
      and {'loss': fp32 scalar}, the mean over replicas of the loss before any update of this call,
      so of the first local step. With format 'none' the replicas' states and losses differ, and a
      reader of the arrays sees those of the first.

    Raises:
      ValueError: if the batch or the mesh does not fit the exchange.
    """
    parts = pieces(config, exchange, mesh, predicted=predicted, **update)
    own, losses_n = parts.compute(state, tokens)
    mean, residual = parts.exchange(own, state.residual)
    state = parts.update(state._replace(residual=residual), mean)
    loss = _on_replicas(mesh, partial(_mean_tree, exchange), _OWN, _EQUAL)(losses_n)
    return state, {"loss": loss}


def pieces(
    config: ModelConfig,
    exchange: Exchange,
    mesh: Mesh,
    *,
    predicted: int | None = None,
    **update: Unpack[Update],
) -> Pieces:
    """The functions that `train_step` is made of, to time the exchange and the rest apart.

    compute: each replica's own gradients, in fp32, and losses, (n,); with local steps its own
      parameters and optimizer state instead. Leaves have a leading axis of n, divided over `data`.
    exchange: their mean, equal on all replicas, and the new residual.
    update: one optimizer step with the mean; with local steps the mean becomes the state. It does
      not touch the residual, which the caller puts in.
    """
    local = exchange.local_steps > 1
    own = partial(_own_steps, **update) if local else _own_gradient
    compute = partial(own, config, exchange, predicted)
    exchanged = _on_replicas(mesh, partial(_exchange, exchange), (_OWN, _OWN), (_EQUAL, _OWN))

    def checked_compute(state: ExchangeState, tokens: jax.Array):
        exchange.check(tokens.shape[0], mesh.shape)
        plain = TrainState(*state[:3])
        return _on_replicas(mesh, compute, (_EQUAL, _OWN), _OWN)(plain, tokens)

    def apply(state: ExchangeState, mean: Any) -> ExchangeState:
        if local:
            new_state = TrainState(state.step + exchange.local_steps, *mean)
        else:
            new_state = apply_gradients(TrainState(*state[:3]), mean, **update)
        places = state_shardings(config, mesh)
        return ExchangeState(
            *jax.lax.with_sharding_constraint(new_state, places), residual=state.residual
        )

    return Pieces(checked_compute, exchanged, apply)


def _on_replicas(mesh: Mesh, fn: Callable, in_specs: Any, out_specs: Any) -> Callable:
    """`fn` on every replica for itself; unchecked, for `_EQUAL` need not be true of 'none'."""
    return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def _with_replica_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def _own_gradient(
    config: ModelConfig,
    exchange: Exchange,
    predicted: int | None,
    state: TrainState,
    tokens: jax.Array,
) -> tuple[Params, jax.Array]:
    grads, loss = _accumulated(config, exchange, predicted, state.params, tokens)
    return _with_replica_axis((grads, loss))


def _own_steps(
    config: ModelConfig,
    exchange: Exchange,
    predicted: int | None,
    state: TrainState,
    tokens: jax.Array,
    **update: Unpack[Update],
) -> tuple[Any, jax.Array]:
    """This replica's parameters and optimizer state after its local steps, and the first's loss."""

    def step(state: TrainState, tokens: jax.Array) -> tuple[TrainState, jax.Array]:
        grads, loss = _accumulated(config, exchange, predicted, state.params, tokens)
        return apply_gradients(state, grads, **update), loss

    batches = tokens.reshape(exchange.local_steps, -1, tokens.shape[-1])
    state, losses = jax.lax.scan(step, state, batches)
    return _with_replica_axis(((state.params, state.opt_state), losses[0]))


def _accumulated(
    config: ModelConfig,
    exchange: Exchange,
    predicted: int | None,
    params: Params,
    tokens: jax.Array,
) -> tuple[Params, jax.Array]:
    """Gradients of the mean loss over all micro-batches, summed in fp32, and that loss."""
    count = exchange.accumulate
    differentiate = jax.value_and_grad(partial(loss_fn, config, predicted=predicted))

    def add(total: Any, tokens: jax.Array) -> tuple[Any, None]:
        loss, grads = differentiate(params, tokens)
        return jax.tree.map(lambda t, x: t + x.astype(t.dtype), total, (grads, loss)), None

    if count == 1:
        loss, grads = differentiate(params, tokens)
        return jax.tree.map(lambda x: x.astype(jnp.float32), (grads, loss))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (params, jnp.float32(0)))
    batches = tokens.reshape(count, -1, tokens.shape[-1])
    total, _ = jax.lax.scan(add, nothing, batches)
    return jax.tree.map(lambda x: x / count, total)


def _exchange(exchange: Exchange, own: Any, residual: Any) -> tuple[Any, Any]:
    """Mean over replicas of trees with a leading axis of 1; inside of a replica."""
    if not exchange.compressed or jax.lax.axis_size("data") == 1:  # nobody to send to
        return _mean_tree(exchange, own), residual
    vector, unravel = ravel_pytree(jax.tree.map(lambda x: x[0], own))
    replicas = jax.lax.axis_size("data")
    length = padded_length(exchange, vector.size, replicas)
    sent_nS = jnp.pad(vector, (0, length - vector.size)).reshape(replicas, -1)
    if exchange.format == "int8":
        sent_nS += residual[0].reshape(sent_nS.shape)
    mean_nS, lost_nS = _compressed_mean(exchange.format, sent_nS)
    if exchange.format == "int8":
        residual = lost_nS.reshape(1, length)
    return unravel(mean_nS.reshape(-1)[: vector.size]), residual


def _mean_tree(exchange: Exchange, own: Any) -> Any:
    """Mean by all-reduce in fp32, or with 'none' what is this replica's own.

    All leaves travel as one vector: a message for each would cost a latency for each. Whole numbers
    are counts of steps, which all replicas have in common.
    """
    own = jax.tree.map(lambda x: x[0], own)
    if exchange.format == "none":
        return own
    leaves, structure = jax.tree.flatten(own)
    is_float = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    wide = [leaf.astype(jnp.float32) for leaf, f in zip(leaves, is_float, strict=True) if f]
    vector, unravel = ravel_pytree(wide)
    means = iter(unravel(jax.lax.psum(vector, "data") / jax.lax.axis_size("data")))
    mixed = [
        next(means).astype(leaf.dtype) if f else leaf
        for leaf, f in zip(leaves, is_float, strict=True)
    ]
    return jax.tree.unflatten(structure, mixed)


def _compressed_mean(format: str, sent_nS: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q(m), and what both encodings lost, u - Q(u) + n (m - Q(m)); see the module's docstring."""
    replicas = sent_nS.shape[0]
    codes = _encode(format, sent_nS)
    lost_nS = sent_nS - _decode(format, codes)
    if replicas == 2:
        both = tuple(jax.lax.all_gather(x, "data") for x in codes)
        return _decode(format, both).mean(axis=0), lost_nS
    received = tuple(jax.lax.all_to_all(x, "data", split_axis=0, concat_axis=0) for x in codes)
    part_S = _decode(format, received).sum(axis=0) / replicas
    part_codes = _encode(format, part_S)
    lost_S = part_S - _decode(format, part_codes)
    gathered = tuple(jax.lax.all_gather(x, "data") for x in part_codes)
    lost_nS = lost_nS.at[jax.lax.axis_index("data")].add(replicas * lost_S)
    return _decode(format, gathered), lost_nS


def _encode(format: str, x: jax.Array) -> Codes:
    """Codes of fp32 values (..., S); S is a multiple of 2048 for int8.

    bf16's bits travel as uint16, for a back end may widen a bf16 that it is to send. A value that
    is not finite makes an int8 block's scale NaN, and with it all values decoded from the block;
    it is looked for, because XLA's CPU back end leaves a NaN out of a maximum.
    """
    if format == "bf16":
        return (jax.lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16),)
    blocks = x.reshape(*x.shape[:-1], -1, SCALED_BLOCK)
    is_finite = jnp.all(jnp.isfinite(blocks), axis=-1)
    scales = jnp.where(is_finite, jnp.max(jnp.abs(blocks), axis=-1) / 127, jnp.nan)
    divisor = jnp.where(scales == 0, 1, scales)[..., None]
    return jnp.round(blocks / divisor).astype(jnp.int8), scales


def _decode(format: str, codes: Codes) -> jax.Array:
    """fp32 values (..., S)."""
    if format == "bf16":
        return jax.lax.bitcast_convert_type(codes[0], jnp.bfloat16).astype(jnp.float32)
    blocks = codes[0].astype(jnp.float32) * codes[1][..., None]
    return blocks.reshape(*blocks.shape[:-2], -1)
