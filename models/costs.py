"""Analytic costs of the model: parameters, FLOPs and bytes; imports neither jax nor flax.

A multiply and an add are two FLOPs, and only matmuls count. N is the number of weights that a
token is multiplied with: all of them but the norms' scales (under 0.1 % of any model here) and the
look-up of the embedding, with the unembedding also where it is tied.

Names: L layers, D width, H heads, K key-value heads, Q head size, F MLP width, V vocabulary,
T length, B batch.
"""

from models.sizes import DTYPE_BYTES, ModelConfig, gemm_shapes


def param_count(config: ModelConfig) -> int:
    """All parameters, exactly: L (D (H + 2K) Q + H Q D + m D F + 2 D) + D + e V D.

    m is 3 for SwiGLU and 2 for GELU, e is 1 if the embedding is tied and 2 otherwise.
    """
    c = config
    qkv = c.width * (c.num_heads + 2 * c.num_kv_heads) * c.head_size
    out = c.num_heads * c.head_size * c.width
    mlp = (c.mlp_inputs + 1) * c.width * c.mlp_width
    norms = 2 * c.width
    tables = (1 if c.tied_embedding else 2) * c.vocab_size * c.width
    return c.num_layers * (qkv + out + mlp + norms) + c.width + tables


def _layer_flops(config: ModelConfig, tokens: int) -> int:
    """2 m k n of one layer's weight matmuls."""
    shapes = gemm_shapes(config, tokens)
    return sum(2 * m * k * n for name, (m, k, n) in shapes.items() if name != "unembed")


def _attention_flops(config: ModelConfig, queries: int, keys: int) -> int:
    """4 H Q per pair of a query and a key in one layer: scores, and the sum over values."""
    return 4 * config.num_heads * config.head_size * queries * keys


def _unembed_flops(config: ModelConfig, tokens: int) -> int:
    m, k, n = gemm_shapes(config, tokens)["unembed"]
    return 2 * m * k * n


def forward_flops(
    config: ModelConfig,
    batch: int,
    length: int,
    causal: bool = False,
    predicted: int | None = None,
) -> int:
    """B T (2 N + 4 L H Q T): logits of every position, or of the last `predicted` alone.

    With `causal` the attention term is halved: the pairs a causal mask lets through, and what an
    implementation that skips the others computes. Without, the full square is counted.
    """
    tokens = batch * length
    attention = config.num_layers * batch * _attention_flops(config, length, length)
    if causal:
        attention //= 2
    unembedded = batch * (length if predicted is None else predicted)
    weights = config.num_layers * _layer_flops(config, tokens)
    return weights + _unembed_flops(config, unembedded) + attention


def train_flops(
    config: ModelConfig,
    batch: int,
    length: int,
    causal: bool = False,
    predicted: int | None = None,
) -> int:
    """B T (6 N + 12 L H Q T): a step's forward pass, and twice that for its backward pass.

    PaLM, arXiv 2204.02311, appendix B. Recomputation (remat) never counts, nor the optimizer.
    With `predicted` only so many positions of a sequence are unembedded.
    """
    return 3 * forward_flops(config, batch, length, causal, predicted)


def prefill_flops(config: ModelConfig, batch: int, length: int, causal: bool = False) -> int:
    """As the forward pass over a prompt, but only its last position is unembedded."""
    return forward_flops(config, batch, length, causal, predicted=1)


def decode_flops(config: ModelConfig, batch: int, cache_length: int) -> int:
    """B (2 N + 4 L H Q S): one more token per sequence, attending to a cache of S positions.

    All S positions are computed, masked or not: the shapes are static.
    """
    attention = batch * _attention_flops(config, 1, cache_length)
    layers = config.num_layers * (_layer_flops(config, batch) + attention)
    return layers + _unembed_flops(config, batch)


def param_bytes(config: ModelConfig) -> int:
    """Bytes of all parameters as they are stored."""
    return param_count(config) * DTYPE_BYTES[config.param_dtype] - _spared_bytes(config)


def _spared_bytes(config: ModelConfig) -> int:
    """What weights in 8 bits spare: a byte each, and an fp32 scale for each output channel."""
    if config.weight_dtype is None:
        return 0
    shapes = [s for name, s in gemm_shapes(config, 1).items() if name != "unembed"]
    stored = sum(k * n * DTYPE_BYTES[config.param_dtype] for _, k, n in shapes)
    scaled = sum(k * n + 4 * n for _, k, n in shapes)
    return config.num_layers * (stored - scaled)


def train_state_bytes(config: ModelConfig, optimizer: str = "adamw") -> int:
    """Weights, AdamW's two moments in the same dtype, and two int32 counts of steps.

    A scale of the loss, where there is one, and its count are 8 bytes more. Gradients come on top
    while a step runs: once more `param_bytes`.

    Raises:
      ValueError: for any other optimizer.
    """
    if optimizer != "adamw":
        raise ValueError(f"optimizer={optimizer!r} is not one of adamw")
    return 3 * param_bytes(config) + 2 * 4 + (8 if config.loss_scaling else 0)


def kv_cache_bytes(config: ModelConfig, batch: int, length: int) -> int:
    """2 L B K S Q values in the compute dtype."""
    c = config
    values = 2 * c.num_layers * batch * c.num_kv_heads * length * c.head_size
    return values * DTYPE_BYTES[c.dtype]


def decode_bytes(config: ModelConfig, batch: int, cache_length: int) -> int:
    """Least traffic of one decode step: every multiplied weight and the whole cache read once.

    A bound: activations, the one new cache entry and the embedding's B rows are left out (an
    untied embedding table is looked up in, not read through). Over the memory bandwidth it gives
    the least time of a step.
    """
    weights = param_count(config)
    if not config.tied_embedding:
        weights -= config.vocab_size * config.width
    weight_bytes = weights * DTYPE_BYTES[config.param_dtype] - _spared_bytes(config)
    return weight_bytes + kv_cache_bytes(config, batch, cache_length)


def activation_bytes(config: ModelConfig, batch: int, length: int) -> int:
    """L s b h (34 + 5 a s / h): activations kept for the backward pass (arXiv 2205.05198, eq. 2).

    s length, b batch, h width, a heads. A published estimate, not what XLA keeps: it assumes 16-bit
    activations, an MLP four times as wide as the model with GELU, as many key-value heads as heads,
    dropout masks, attention scores kept in full, no recomputation and one device, and leaves out
    the logits. `config.remat` 'full' keeps each layer's input alone, L 2 s b h (section 5 there);
    the other policies are not in the paper.

    Raises:
      ValueError: if `config.remat` is neither 'none' nor 'full'.
    """
    c = config
    token_widths = length * batch * c.width
    if c.remat == "full":
        return c.num_layers * 2 * token_widths
    if c.remat != "none":
        raise ValueError(f"no published estimate of activations for remat={c.remat!r}")
    scores = 5 * c.num_heads * length * length * batch
    return c.num_layers * (34 * token_widths + scores)
