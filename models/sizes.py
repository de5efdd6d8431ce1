"""Model shapes by name, with the source of each; imports neither jax nor flax."""

import dataclasses
from collections.abc import Mapping

ACTIVATIONS = ("gelu", "swiglu")
ATTENTIONS = ("einsum", "jax", "cudnn")
SAMPLINGS = ("greedy", "top_k")
REMATS = ("none", "dots", "full")
DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
WEIGHT_DTYPES = ("int8", "float8_e4m3fn")  # one byte each


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Architecture of one decoder-only Transformer, and how it is to be computed.

    The first block of fields fixes the parameters, the second only how they are used: two configs
    that differ in the second block alone share their parameters (`dtype` and the like never change
    the shape or the order of the parameter tree).

    Raises:
      ValueError: one line that names the field, if a shape or an option makes no sense.
    """

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    vocab_size: int
    context: int  # longest sequence the published model was trained for, in tokens
    activation: str = "swiglu"  # 'gelu' (one up projection) or 'swiglu' (gate and up projection)
    tied_embedding: bool = False  # the unembedding is the transposed embedding table
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5

    dtype: str = "float32"  # of activations and of the operands of every dot
    param_dtype: str = "float32"  # of the stored weights and of the optimizer's moments
    weight_dtype: str | None = None  # of the layers' weights where scaled to 8 bits: no training
    remat: str = "none"  # 'none', 'dots' (keep the weight matmuls' outputs) or 'full'
    scan_layers: bool = True  # one loop over stacked layers, or the same layers unrolled
    attention: str = "einsum"  # 'einsum' (ours), 'jax' (jax.nn, XLA) or 'cudnn' (GPU only)
    dot_precision: str | None = None  # a jax.lax.Precision or DotAlgorithmPreset name

    published_params: int | None = None  # as the source gives it, for the original architecture
    source: str = ""

    def __post_init__(self) -> None:
        for name in (
            "num_layers", "width", "num_heads", "num_kv_heads", "head_size",
            "mlp_width", "vocab_size", "context",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} is not divisible by num_kv_heads={self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(f"head_size={self.head_size} must be even: rotary rotates pairs")
        _require_one_of("activation", self.activation, ACTIVATIONS)
        _require_one_of("attention", self.attention, ATTENTIONS)
        _require_one_of("remat", self.remat, REMATS)
        _require_one_of("dtype", self.dtype, tuple(DTYPE_BYTES))
        _require_one_of("param_dtype", self.param_dtype, tuple(DTYPE_BYTES))
        if self.weight_dtype is not None:
            _require_one_of("weight_dtype", self.weight_dtype, WEIGHT_DTYPES)

    @property
    def queries_per_kv_head(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def wide_dtype(self) -> str:
        """For what must not be rounded to the compute dtype: fp32, or fp64 in an fp64 model."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def loss_scaling(self) -> bool:
        """Whether a train step scales its loss: gradients in fp16, weights in something wider."""
        return self.dtype == "float16" and self.param_dtype != "float16"

    @property
    def mlp_inputs(self) -> int:
        """Projections into the MLP's hidden layer: gate and up for SwiGLU, only up for GELU."""
        return 2 if self.activation == "swiglu" else 1


def _require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(allowed)}")


def gemm_shapes(config: ModelConfig, tokens: int) -> dict[str, tuple[int, int, int]]:
    """Matmuls with weights, as (m, k, n) by name, for `tokens` rows.

    All but the last make up one layer, in order; 'unembed' comes once, after the last layer. The
    query, key and value projections are one matmul. 'mlp_gate' is there for SwiGLU only.
    """
    c = config
    shapes = {
        "qkv": (tokens, c.width, (c.num_heads + 2 * c.num_kv_heads) * c.head_size),
        "attention_out": (tokens, c.num_heads * c.head_size, c.width),
        "mlp_up": (tokens, c.width, c.mlp_width),
        "mlp_gate": (tokens, c.width, c.mlp_width),
        "mlp_down": (tokens, c.mlp_width, c.width),
        "unembed": (tokens, c.width, c.vocab_size),
    }
    if c.activation != "swiglu":
        del shapes["mlp_gate"]
    return shapes


# Which dimension is divided over which mesh axes; models/sharding.py turns names into shardings.
# Activations, weights and the KV cache share the names; None stands for a dimension kept whole.
MESH_AXES_OF = {
    "batch": ("data", "fsdp"),
    "length": ("seq",),
    "kv_heads": ("model",),  # a key-value head keeps its group of query heads beside it
    "mlp": ("model",),
    "vocab": ("model",),
    "embed": ("fsdp",),  # the weights' width; activations keep their width whole
    "layers": (),
    "norm": (),
}


def check_divisible(
    config: ModelConfig, batch: int, length: int, mesh_shape: Mapping[str, int]
) -> None:
    """Checks that every sharded dimension divides evenly over its mesh axes.

    Args:
      batch, length: of one global batch, in sequences and in tokens.
      mesh_shape: size by axis name. Axes that are absent divide nothing.

    Raises:
      ValueError: one line with the dimension, the axis and both sizes; or an unknown axis.
    """
    known = {axis for axes in MESH_AXES_OF.values() for axis in axes}
    for axis in mesh_shape:
        if axis not in known:
            raise ValueError(f"mesh axis {axis!r} is not one of {', '.join(sorted(known))}")
    sizes = {
        "batch": batch,
        "length": length,
        "kv_heads": config.num_kv_heads,
        "mlp": config.mlp_width,
        "vocab": config.vocab_size,
        "embed": config.width,
    }
    field = {"kv_heads": "num_kv_heads", "mlp": "mlp_width", "vocab": "vocab_size"}
    field["embed"] = "width"
    for dimension, size in sizes.items():
        axes = [axis for axis in MESH_AXES_OF[dimension] if axis in mesh_shape]
        parts = 1
        for axis in axes:
            parts *= mesh_shape[axis]
        if size % parts:
            named = " x ".join(f"{axis!r}" for axis in axes)
            noun = "axis" if len(axes) == 1 else "axes"
            raise ValueError(
                f"{field.get(dimension, dimension)}={size} does not divide over mesh {noun} "
                f"{named} of size {parts}"
            )


SIZES: dict[str, ModelConfig] = {
    "tiny": ModelConfig(
        num_layers=2, width=64, num_heads=4, num_kv_heads=2, head_size=16, mlp_width=128,
        vocab_size=256, context=64, source="made up: every feature, in milliseconds",
    ),
    "digits": ModelConfig(
        num_layers=3, width=64, num_heads=4, num_kv_heads=2, head_size=16, mlp_width=128,
        vocab_size=32, context=64, rope_base=100.0, scan_layers=False,
        source="made up: 97 % of handwritten digits and more; see configs/digits.py",
    ),
    "digits_fast": ModelConfig(
        num_layers=2, width=64, num_heads=4, num_kv_heads=2, head_size=16, mlp_width=128,
        vocab_size=32, context=64, rope_base=100.0, scan_layers=False,
        source="made up: the same with a layer less; see configs/digits_fast.py",
    ),
    "bytes_small": ModelConfig(
        num_layers=4, width=128, num_heads=4, num_kv_heads=4, head_size=32, mlp_width=512,
        vocab_size=256, context=128, activation="gelu", tied_embedding=True, scan_layers=False,
        source="made up: learns a text in a minute on a CPU; see configs/text.py",
    ),
    "gpt2_char": ModelConfig(
        num_layers=6, width=384, num_heads=6, num_kv_heads=6, head_size=64, mlp_width=1536,
        vocab_size=65, context=256, activation="gelu", tied_embedding=True,
        scan_layers=False,  # six small layers compile soon, and run a few per cent faster
        source="karpathy/nanoGPT, config/train_shakespeare_char.py; 65 characters in its data",
    ),
    "gpt2_124m": ModelConfig(
        num_layers=12, width=768, num_heads=12, num_kv_heads=12, head_size=64, mlp_width=3072,
        vocab_size=50_257, context=1024, activation="gelu", tied_embedding=True,
        published_params=124_439_808,
        source="Radford et al. 2019, table 2 (smallest); count of the released gpt2 checkpoint",
    ),
    "llama2_7b": ModelConfig(
        num_layers=32, width=4096, num_heads=32, num_kv_heads=32, head_size=128, mlp_width=11_008,
        vocab_size=32_000, context=4096, published_params=6_738_415_616,
        source="arXiv 2307.09288; config.json and count of meta-llama/Llama-2-7b-hf",
    ),
    "llama2_70b": ModelConfig(
        num_layers=80, width=8192, num_heads=64, num_kv_heads=8, head_size=128, mlp_width=28_672,
        vocab_size=32_000, context=4096, published_params=68_976_648_192,
        source="arXiv 2307.09288; config.json and count of meta-llama/Llama-2-70b-hf",
    ),
    "gpt3_175b": ModelConfig(
        num_layers=96, width=12_288, num_heads=96, num_kv_heads=96, head_size=128,
        mlp_width=49_152, vocab_size=50_257, context=2048, activation="gelu",
        tied_embedding=True, published_params=174_600_000_000,
        source="arXiv 2005.14165, table 2.1 (shape) and table D.1 (174,600 M parameters)",
    ),
    "llama3_8b": ModelConfig(
        num_layers=32, width=4096, num_heads=32, num_kv_heads=8, head_size=128, mlp_width=14_336,
        vocab_size=128_256, context=8192, rope_base=500_000.0, published_params=8_030_261_248,
        source="arXiv 2407.21783, table 3; config.json and count of meta-llama/Meta-Llama-3-8B",
    ),
    "llama_65b": ModelConfig(
        num_layers=80, width=8192, num_heads=64, num_kv_heads=64, head_size=128, mlp_width=22_016,
        vocab_size=32_000, context=2048, published_params=65_285_660_672,
        source="arXiv 2302.13971, table 2; config.json and count of huggyllama/llama-65b",
    ),
    "llama2_13b": ModelConfig(
        num_layers=40, width=5120, num_heads=40, num_kv_heads=40, head_size=128, mlp_width=13_824,
        vocab_size=32_000, context=4096, published_params=13_015_864_320,
        source="arXiv 2307.09288; config.json and count of meta-llama/Llama-2-13b-hf",
    ),
    "llama3_405b": ModelConfig(
        num_layers=126, width=16_384, num_heads=128, num_kv_heads=8, head_size=128,
        mlp_width=53_248, vocab_size=128_256, context=8192, rope_base=500_000.0,
        published_params=405_853_388_800,
        source="arXiv 2407.21783, table 3; config.json and count of meta-llama/Llama-3.1-405B",
    ),
    "opt_175b": ModelConfig(
        num_layers=96, width=12_288, num_heads=96, num_kv_heads=96, head_size=128,
        mlp_width=49_152, vocab_size=50_272, context=2048, activation="gelu",
        tied_embedding=True, published_params=175_000_000_000,
        source="arXiv 2205.01068, table 1 (its ReLU taken as GELU, which costs the same products)",
    ),
    "bloom_176b": ModelConfig(
        num_layers=70, width=14_336, num_heads=112, num_kv_heads=112, head_size=128,
        mlp_width=57_344, vocab_size=250_880, context=2048, activation="gelu",
        tied_embedding=True, published_params=176_247_271_424,
        source="arXiv 2211.05100, table 3; config.json and count of bigscience/bloom",
    ),
    "mt_nlg_530b": ModelConfig(
        num_layers=105, width=20_480, num_heads=128, num_kv_heads=128, head_size=160,
        mlp_width=81_920, vocab_size=50_257, context=2048, activation="gelu",
        tied_embedding=True, published_params=530_000_000_000,
        source="arXiv 2201.11990, section 3.2",
    ),
    "palm_540b": ModelConfig(
        num_layers=118, width=18_432, num_heads=48, num_kv_heads=1, head_size=256,
        mlp_width=73_728, vocab_size=256_000, context=2048, tied_embedding=True,
        published_params=540_350_000_000,
        source="arXiv 2204.02311, table 1 and section 2 (its parallel layers taken one after the "
        "other, which costs the same products)",
    ),
    "smollm3_3b": ModelConfig(
        num_layers=36, width=2048, num_heads=16, num_kv_heads=4, head_size=128, mlp_width=11_008,
        vocab_size=128_256, context=4096, tied_embedding=True, published_params=3_075_098_624,
        source="huggingface.co/blog/smollm3; config.json and count of its SmolLM3-3B-Base",
    ),
    "llama3_2_1b": ModelConfig(
        num_layers=16, width=2048, num_heads=32, num_kv_heads=8, head_size=64, mlp_width=8192,
        vocab_size=128_256, context=131_072, tied_embedding=True, rope_base=500_000.0,
        published_params=1_235_814_400,
        source="config.json and count of meta-llama/Llama-3.2-1B (its rotary rescaling left out)",
    ),
}  # fmt: skip
