"""What a plan is asked for: checked before any start, and filled up with defaults that are said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_bench import chips, mesh, precision
from accel_bench import target as targets
from accel_bench.chips import Chip
from accel_bench.errors import RequestError
from accel_bench.target import Target
from accel_bench.workloads.params import resolve_model
from models import costs
from models.sizes import MESH_AXES_OF, ModelConfig

# Tokens of a batch by parameters up to so many: GPT-3's family (arXiv 2005.14165, table 2.1, as the
# next power of two), and LLaMA-2's 4M for all that is larger (arXiv 2307.09288, table 1).
_BATCH_TOKENS = ((1e9, 1 << 19), (5e9, 1 << 20), (20e9, 1 << 21), (math.inf, 1 << 22))
# Longer sequences than this are asked for and not assumed.
_LONGEST = 8192
MAX_COMPILES = 64
_AXES = tuple(dict.fromkeys(axis for axes in MESH_AXES_OF.values() for axis in axes))


@dataclass(frozen=True)
class Request:
    """A plan that can be made.

    Attributes:
      model: a key of `models.sizes.SIZES`, and `size`, its architecture.
      tokens: to train on.
      targets: on what.
      sequences, length: of one batch of the optimizer, and tokens in each.
      precision: asked for; empty: `mixed_bf16`, or `mixed_fp16` on chips without bf16.
      mesh: the only one to look at; empty: those that `candidates` finds.
      prices: chip -> money for one chip for an hour.
      compiles: candidates that are compiled for a target, at most.
      budget_s: after so many seconds no other compilation starts.
      defaults: what was not asked for, in words.
    """

    model: str
    size: ModelConfig
    tokens: float
    targets: tuple[Target, ...]
    sequences: int
    length: int
    precision: str
    mesh: str
    prices: Mapping[str, float]
    compiles: int
    budget_s: float
    defaults: tuple[str, ...]

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step of the optimizer."""
        return self.sequences * self.length

    @property
    def steps(self) -> int:
        """Steps of the optimizer."""
        return math.ceil(self.tokens / self.batch_tokens)

    def precision_on(self, chip: Chip) -> str:
        """The precision of a train step on a chip."""
        if self.precision:
            return self.precision
        return next((f"mixed_{u}" for u in ("bf16", "fp16") if u in chip.peaks), "fp32")

    def flops_of_step(self) -> int:
        """6N + 12LHQT for each token of a batch; recomputation never counts."""
        return costs.train_flops(self.size, self.sequences, self.length)


def make(
    *,
    model: str | None,
    tokens: float | None,
    named: str | None,
    batch_tokens: float | None = None,
    length: int | None = None,
    precisions: str | None = None,
    axes: str | None = None,
    prices: str | None = None,
    compiles: int = 8,
    budget_s: float = 600.0,
) -> Request:
    """The request that flags make.

    Args:
      model, tokens, named: what to train, on how many tokens, on which targets (`--targets`).
      batch_tokens, length, precisions, axes: None where not asked for.
      prices: as in `v5p=4.2,h100_sxm=2.5`.
      compiles, budget_s: see `Request`.

    Raises:
      RequestError: something is missing, unknown or makes no sense.
    """
    if not model:
        raise RequestError("plan needs --model=NAME: python main.py list models names them")
    size = resolve_model(model, {})
    if tokens is None:
        raise RequestError("plan needs --tokens=N: how many to train on, as in --tokens=2e12")
    _whole("tokens", tokens)
    chosen = _targets(named)
    defaults = []
    if length is None:
        length = min(size.context, _LONGEST)
        defaults.append(f"sequences of {length} tokens (--length)")
    if length < 1:
        raise RequestError(f"--length={length}: tokens of a sequence, at least 1")
    if batch_tokens is None:
        parameters = costs.param_count(size)
        batch_tokens = next(count for most, count in _BATCH_TOKENS if parameters <= most)
        why = "as models of this size were trained"
        if batch_tokens < length:
            why = "one sequence"
        batch_tokens = max(batch_tokens // length, 1) * length
        defaults.append(f"{batch_tokens:,} tokens a batch (--batch_tokens), {why}")
    _whole("batch_tokens", batch_tokens)
    sequences, rest = divmod(int(batch_tokens), length)
    if rest or not sequences:
        power = 1 << max(round(math.log2(max(batch_tokens / length, 1))), 0)
        raise RequestError(
            f"--batch_tokens={batch_tokens:g} is no multiple of the {length} tokens of a sequence: "
            f"choose such as {power * length} ({power} sequences)"
        )
    named_precision = (precisions or "").strip()
    if named_precision:
        _check_precision(named_precision)
    else:
        defaults.append(
            "mixed_bf16, or mixed_fp16 where a chip has no bf16, fp32 where neither (--precision)"
        )
    for target in chosen if axes else ():
        for axis in mesh.check(axes or "", target.num_devices, str(target)):
            if axis not in _AXES:
                raise RequestError(f"--mesh={axes}: a train step has the axes {', '.join(_AXES)}")
    if not 1 <= compiles <= MAX_COMPILES:
        raise RequestError(f"--plan_compiles={compiles}: choose from 1 to {MAX_COMPILES}")
    if not 0 < budget_s < math.inf:
        raise RequestError(f"--plan_budget_s={budget_s:g}: a number of seconds above 0")
    return Request(
        model, size, tokens, chosen, sequences, length, named_precision, axes or "",
        _prices(prices), compiles, budget_s, tuple(defaults),
    )  # fmt: skip


def _whole(name: str, value: float) -> None:
    if not 1 <= value <= 1e18 or value != int(value):
        raise RequestError(f"--{name}={value:g}: a whole number from 1 to 1e18")


def _targets(named: str | None) -> tuple[Target, ...]:
    words = [word.strip() for word in (named or "").split(",") if word.strip()]
    if not words:
        raise RequestError("plan needs --targets, as in --targets=tpu:v5p:8x8x8,gpu:h100_sxm:64x8")
    if "auto" in words:
        words = [w for word in words for w in (targets.AUTO if word == "auto" else (word,))]
    return tuple(dict.fromkeys(targets.parse(word) for word in words))


def _check_precision(name: str) -> None:
    if "," in name:
        raise RequestError(f"--precision={name}: a plan is for one precision")
    entry = precision.lookup(name)
    if entry.bits == 8:
        raise RequestError(f"--precision={name}: nothing is trained in 8 bits; use mixed_bf16")


def _prices(text: str | None) -> dict[str, float]:
    """Chip -> money for an hour of it."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        name, separator, value = part.partition("=")
        try:
            price = float(value) if separator else math.nan
        except ValueError:
            price = math.nan
        if not 0 < price < math.inf:
            raise RequestError(
                f"--prices={part}: write CHIP=MONEY for an hour of one chip, as in v5p=4.2"
            )
        chips.lookup(name.strip())
        found[name.strip()] = price
    return found


def directories(text: str | None) -> Sequence[Path]:
    """The workdirs that `--records` names."""
    return [Path(part.strip()) for part in (text or "").split(",") if part.strip()]


def computed_as(size: ModelConfig, named: str) -> ModelConfig:
    """The architecture with the dtypes of a precision, which its bytes depend on."""
    entry = precision.lookup(named)
    return dataclasses.replace(size, dtype=entry.compute, param_dtype=entry.storage)
