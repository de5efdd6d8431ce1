"""Train and decode steps: plain functions of plain pytrees, to be given to `jax.jit`.

Parameters are nested dicts of arrays; the NNX model is put together only while a step is traced,
so a compiled step costs the host no more than its leaves. Bind `config` and `mesh` first, they are
static:

    step = jax.jit(partial(train_step, config, mesh=mesh), donate_argnums=0)
    state, metrics = step(state, tokens)
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.sharding import named_sharding
from models.sizes import ModelConfig
from models.transformer import CACHE_AXES, Cache, Transformer

Params = dict[str, Any]
LearningRate = float | jax.Array | Callable[[Any], Any]  # or an optax schedule, of the step's count


class TrainState(NamedTuple):
    """Arrays; or, as a tree of the same structure, their shapes or their shardings."""

    step: Any  # int32, steps taken
    params: Any
    opt_state: Any


LEARNING_RATE = 3e-4
ADAM_B1 = 0.9


def optimizer(learning_rate: float | jax.Array = LEARNING_RATE) -> optax.GradientTransformation:
    """AdamW with GPT-3's constants (arXiv 2005.14165, appendix B); its state has no rate in it."""
    return optax.adamw(learning_rate, b1=ADAM_B1, b2=0.95, eps=1e-8, weight_decay=0.1)


@functools.lru_cache(maxsize=64)
def _graph(config: ModelConfig, mesh: Mesh | None) -> tuple[nnx.GraphDef, nnx.State]:
    """Structure of the model and its abstract parameters, with their logical axes."""
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0), mesh))
    return nnx.split(model)


def bind(config: ModelConfig, params: Params, mesh: Mesh | None = None) -> Transformer:
    """The NNX model with these parameters in it."""
    graph, abstract = _graph(config, mesh)
    leaves = jax.tree.leaves(params)
    return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))


def init_params(config: ModelConfig, key: jax.Array) -> Params:
    """Random parameters: the same for a key whatever the mesh and the device."""
    return nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(key))))


def _initial_state(config: ModelConfig, key: jax.Array) -> TrainState:
    params = init_params(config, key)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer().init(params))


def param_shardings(config: ModelConfig, mesh: Mesh) -> Params:
    """Sharding of every parameter, as a tree like the parameters."""
    _, abstract = _graph(config, None)
    shardings = jax.tree.map(
        lambda param: param.replace(named_sharding(param.get_metadata("logical_axes"), mesh)),
        abstract,
        is_leaf=lambda x: isinstance(x, nnx.Variable),
    )
    return nnx.to_pure_dict(shardings)


def state_shardings(config: ModelConfig, mesh: Mesh) -> TrainState:
    """Sharding of every leaf of the train state: moments like their parameters, counts whole."""
    shapes = jax.eval_shape(partial(_initial_state, config), jax.random.key(0))
    params = param_shardings(config, mesh)
    whole = NamedSharding(mesh, PartitionSpec())
    opt_state = optax.tree_map_params(
        optimizer(),
        lambda _, sharding: sharding,
        shapes.opt_state,
        params,
        transform_non_params=lambda _: whole,
    )
    return TrainState(whole, params, opt_state)


def abstract_train_state(config: ModelConfig, mesh: Mesh | None = None) -> TrainState:
    """The train state as `ShapeDtypeStruct`s, with shardings if there is a mesh.

    No weight is ever allocated, whatever the size of the model, and the mesh may be over devices
    that are only described.
    """
    shapes = jax.eval_shape(partial(_initial_state, config), jax.random.key(0))
    if mesh is None:
        return shapes
    return _with_shardings(shapes, state_shardings(config, mesh))


def _with_shardings(shapes: Any, shardings: Any) -> Any:
    return jax.tree.map(
        lambda s, sharding: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding),
        shapes,
        shardings,
    )


@functools.lru_cache(maxsize=64)
def _creator(config: ModelConfig, mesh: Mesh | None):
    shardings = None if mesh is None else state_shardings(config, mesh)
    return jax.jit(partial(_initial_state, config), out_shardings=shardings)


def create_train_state(config: ModelConfig, seed: int, mesh: Mesh | None = None) -> TrainState:
    """Random initial state on the default device or, already divided, on the mesh."""
    return _creator(config, mesh)(jax.random.key(seed))


def forward(
    config: ModelConfig,
    params: Params,
    tokens_BT: jax.Array,
    *,
    mesh: Mesh | None = None,
    predicted: int | None = None,
) -> jax.Array:
    """Logits (B, T, V), fp32; or (B, P, V) of the last P = `predicted` positions alone.

    Raises:
      ValueError: if there are not so many positions.
    """
    model = bind(config, params, mesh)
    if predicted is None:
        return model(tokens_BT)
    if not 1 <= predicted <= tokens_BT.shape[1]:
        raise ValueError(f"predicted={predicted} is not within 1 and length={tokens_BT.shape[1]}")
    x_BTD, _ = model._layers(model._embed(tokens_BT))
    return model._unembed(x_BTD[:, -predicted:])


def loss_fn(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    *,
    mesh: Mesh | None = None,
    predicted: int | None = None,
) -> jax.Array:
    """Mean cross-entropy, in nats, of each next token; tokens are (B, T+1), T are predicted.

    With `predicted` only so many of the T count, the last ones, as where a sequence ends in the
    class that it belongs to; the logits of the others are not computed.
    """
    logits_BTV = forward(config, params, tokens[:, :-1], mesh=mesh, predicted=predicted)
    target_BT = tokens[:, 1:] if predicted is None else tokens[:, -predicted:]
    # The target's logit by comparison, not by look-up: it needs no exchange of logits when the
    # vocabulary is divided over devices, and its gradient is no scatter.
    is_target_BTV = target_BT[..., None] == jnp.arange(config.vocab_size)
    target_logit_BT = jnp.sum(jnp.where(is_target_BTV, logits_BTV, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits_BTV, axis=-1) - target_logit_BT)


def apply_gradients(state: TrainState, grads: Params, learning_rate: LearningRate) -> TrainState:
    """One step of AdamW; gradients of another dtype are rounded to that of their parameters.

    A schedule is asked here, not by the optimizer, whose state would then hold one more count.
    """
    rate = learning_rate(state.step) if callable(learning_rate) else learning_rate
    grads = jax.tree.map(lambda grad, param: grad.astype(param.dtype), grads, state.params)
    updates, opt_state = optimizer(rate).update(grads, state.opt_state, state.params)
    params: Any = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state)


def train_step(
    config: ModelConfig,
    state: TrainState,
    tokens: jax.Array,
    *,
    mesh: Mesh | None = None,
    learning_rate: LearningRate = LEARNING_RATE,
    predicted: int | None = None,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """One step of AdamW on tokens (B, T+1). Returns the new state and {'loss': fp32 scalar}.

    The new state has the structure, dtypes and shardings of the old one, which may be donated,
    whether the learning rate is a number, a traced scalar or an optax schedule. The loss is that of
    the parameters before the update, over the tokens that `loss_fn` counts.
    """
    loss, grads = jax.value_and_grad(partial(loss_fn, config, mesh=mesh, predicted=predicted))(
        state.params, tokens
    )
    new_state = apply_gradients(state, grads, learning_rate)
    if mesh is not None:
        new_state = jax.lax.with_sharding_constraint(new_state, state_shardings(config, mesh))
    return new_state, {"loss": loss}


def abstract_cache(
    config: ModelConfig, batch: int, length: int, mesh: Mesh | None = None
) -> dict[str, jax.ShapeDtypeStruct]:
    """Key-value cache for `length` positions as `ShapeDtypeStruct`s, in the compute dtype."""
    shape = (config.num_layers, batch, config.num_kv_heads, length, config.head_size)
    sharding = None if mesh is None else named_sharding(CACHE_AXES, mesh)
    leaf = jax.ShapeDtypeStruct(shape, jnp.dtype(config.dtype), sharding=sharding)
    return {"k": leaf, "v": leaf}


def init_cache(config: ModelConfig, batch: int, length: int, mesh: Mesh | None = None) -> Cache:
    """An empty key-value cache."""
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
        abstract_cache(config, batch, length, mesh),
    )


def prefill(
    config: ModelConfig,
    params: Params,
    cache: Cache,
    tokens_BT: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache]:
    """Reads a prompt. Returns the logits (B, V) after its last token, and the cache."""
    return bind(config, params, mesh).prefill(tokens_BT, cache)


def decode_step(
    config: ModelConfig,
    params: Params,
    cache: Cache,
    tokens_B: jax.Array,
    position: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache]:
    """Reads one more token per sequence, at `position` (int32 scalar, traced).

    Returns the logits (B, V) after it, and the cache, which may be donated. Attention runs over
    the whole static length of the cache with later positions masked.
    """
    return bind(config, params, mesh).decode_step(tokens_B, cache, position)
