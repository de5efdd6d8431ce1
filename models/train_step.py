"""Train state, forward pass and train step: plain functions of plain pytrees, for `jax.jit`.

Parameters are nested dicts of arrays; the NNX model is put together only while a step is traced,
so a compiled step costs the host no more than its leaves. Bind `config` and `mesh` first, they are
static:

    step = jax.jit(partial(train_step, config, mesh=mesh), donate_argnums=0)
    state, metrics = step(state, tokens)
"""

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models import loss_scaling
from models.loss_scaling import LossScaling, ScaledState
from models.quantised import is_scaled, scaled_shardings, stored
from models.sharding import named_sharding
from models.sizes import ModelConfig
from models.transformer import Transformer

Params = dict[str, Any]
LearningRate = float | jax.Array | Callable[[Any], Any]  # or an optax schedule, of the step's count


class TrainState(NamedTuple):
    """Arrays; or, as a tree of the same structure, their shapes or their shardings."""

    step: Any  # int32, steps taken
    params: Any
    opt_state: Any


State = TrainState | ScaledState  # the second where `ModelConfig.loss_scaling`
LEARNING_RATE = 3e-4
ADAM_B1 = 0.9
WEIGHT_DECAY = 0.1


class Update(TypedDict, total=False):
    """What a step of the optimizer may be told; each with a default in `apply_gradients`."""

    learning_rate: LearningRate
    weight_decay: float
    clip: float


def optimizer(
    learning_rate: float | jax.Array = LEARNING_RATE, weight_decay: float = WEIGHT_DECAY
) -> optax.GradientTransformation:
    """AdamW with GPT-3's constants (arXiv 2005.14165, appendix B); neither is in its state."""
    return optax.adamw(learning_rate, b1=ADAM_B1, b2=0.95, eps=1e-8, weight_decay=weight_decay)


@functools.lru_cache(maxsize=64)
def _graph(config: ModelConfig, mesh: Mesh | None) -> tuple[nnx.GraphDef, nnx.State]:
    """Structure of the model and its abstract parameters, with their logical axes."""
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0), mesh))
    return nnx.split(model)


def bind(config: ModelConfig, params: Params, mesh: Mesh | None = None) -> Transformer:
    """The NNX model with these parameters in it."""
    graph, abstract = _graph(config, mesh)
    leaves = jax.tree.leaves(params, is_leaf=is_scaled)
    return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))


def init_params(config: ModelConfig, key: jax.Array) -> Params:
    """Random parameters: the same for a key whatever the mesh, the device and the dtypes."""
    if config.weight_dtype is not None:
        trained = dataclasses.replace(config, weight_dtype=None, param_dtype="float32")
        return stored(config, init_params(trained, key))
    return nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(key))))


def _initial_state(config: ModelConfig, key: jax.Array) -> State:
    _require_trainable(config)
    return _state_with(config, init_params(config, key))


def _state_with(config: ModelConfig, params: Params) -> State:
    state = TrainState(jnp.zeros((), jnp.int32), params, optimizer().init(params))
    return ScaledState(*state, loss_scaling.start()) if config.loss_scaling else state


def _require_trainable(config: ModelConfig) -> None:
    """Raises `ValueError` for weights that no gradient can move."""
    if config.weight_dtype is not None:
        raise ValueError(f"weights in {config.weight_dtype} are for inference: train in 16 bits")


def param_shardings(config: ModelConfig, mesh: Mesh) -> Params:
    """Sharding of every parameter, as a tree like the parameters."""
    _, abstract = _graph(config, None)
    shardings = jax.tree.map(
        lambda param: param.replace(named_sharding(param.get_metadata("logical_axes"), mesh)),
        abstract,
        is_leaf=lambda x: isinstance(x, nnx.Variable),
    )
    plain = nnx.to_pure_dict(shardings)
    return plain if config.weight_dtype is None else scaled_shardings(plain)


def abstract_params(config: ModelConfig, mesh: Mesh | None = None) -> Params:
    """The parameters as `ShapeDtypeStruct`s, with shardings if there is a mesh."""
    shapes = jax.eval_shape(partial(init_params, config), jax.random.key(0))
    return shapes if mesh is None else _with_shardings(shapes, param_shardings(config, mesh))


def state_shardings(config: ModelConfig, mesh: Mesh) -> State:
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
    if config.loss_scaling:
        return ScaledState(whole, params, opt_state, LossScaling(whole, whole))
    return TrainState(whole, params, opt_state)


def abstract_train_state(config: ModelConfig, mesh: Mesh | None = None) -> TrainState:
    """The train state, or `ScaledState`, as `ShapeDtypeStruct`s; with shardings if on a mesh.

    No weight is ever allocated, whatever the size of the model, and the mesh may be over devices
    that are only described.
    """
    shapes: Any = jax.eval_shape(partial(_initial_state, config), jax.random.key(0))
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


def create_train_state(config: ModelConfig, seed: int, mesh: Mesh | None = None) -> State:
    """Random initial state on the default device or, already divided, on the mesh."""
    return _creator(config, mesh)(jax.random.key(seed))


def state_with(config: ModelConfig, weights: Params, mesh: Mesh) -> State:
    """The state before the first step, with these weights, whose buffers it takes over."""
    start = partial(_state_with, config)
    return jax.jit(start, out_shardings=state_shardings(config, mesh), donate_argnums=0)(weights)


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


def scores(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    *,
    mesh: Mesh | None = None,
    predicted: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """For each sequence the loss, and the share of tokens that the model holds most likely: (B,).

    Over the tokens that `loss_fn` counts, which gives the mean of these losses.
    """
    logits_BTV = forward(config, params, tokens[:, :-1], mesh=mesh, predicted=predicted)
    target_BT = tokens[:, 1:] if predicted is None else tokens[:, -predicted:]
    is_target_BTV = target_BT[..., None] == jnp.arange(config.vocab_size)
    target_logit_BT = jnp.sum(jnp.where(is_target_BTV, logits_BTV, 0.0), axis=-1)
    loss_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - target_logit_BT
    is_right_BT = jnp.argmax(logits_BTV, axis=-1) == target_BT
    return jnp.mean(loss_BT, axis=-1), jnp.mean(is_right_BT.astype(jnp.float32), axis=-1)


def apply_gradients(
    state: State,
    grads: Any,
    learning_rate: LearningRate = LEARNING_RATE,
    weight_decay: float = WEIGHT_DECAY,
    clip: float = 0.0,
) -> TrainState:
    """One step of AdamW; gradients of another dtype are rounded to that of their parameters.

    A schedule is asked here, not by the optimizer, whose state would then hold one more count.
    Gradients whose norm, over all of them, is above `clip` are scaled down to it; 0 scales none.
    """
    rate = learning_rate(state.step) if callable(learning_rate) else learning_rate
    if clip:
        grads, _ = optax.clip_by_global_norm(clip).update(grads, optax.EmptyState())
    grads = jax.tree.map(lambda grad, param: grad.astype(param.dtype), grads, state.params)
    rule = optimizer(rate, weight_decay)
    updates, opt_state = rule.update(grads, state.opt_state, state.params)
    params: Any = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state)


def train_step(
    config: ModelConfig,
    state: State,
    tokens: jax.Array,
    *,
    mesh: Mesh | None = None,
    predicted: int | None = None,
    **update: Unpack[Update],
) -> tuple[State, dict[str, jax.Array]]:
    """One step of AdamW on tokens (B, T+1). Returns the new state and {'loss': fp32 scalar}.

    The new state has the structure, dtypes and shardings of the old one, which may be donated,
    whether the learning rate is a number, a traced scalar or an optax schedule. The loss is that of
    the parameters before the update, over the tokens that `loss_fn` counts. `update` is told to
    `apply_gradients`. With a `ScaledState` the loss is scaled, and the step may be skipped.
    """
    _require_trainable(config)
    loss_of = partial(loss_fn, config, mesh=mesh, predicted=predicted)
    apply = partial(apply_gradients, **update)
    if isinstance(state, ScaledState):
        run = loss_scaling.value_and_grad(loss_of, state.scaling)
        loss, grads = run(state.params, tokens)
        new_state = loss_scaling.updated(state, grads, apply)
    else:
        loss, grads = jax.value_and_grad(loss_of)(state.params, tokens)
        new_state = apply(state, grads)
    if mesh is not None:
        new_state = jax.lax.with_sharding_constraint(new_state, state_shardings(config, mesh))
    return new_state, {"loss": loss}
