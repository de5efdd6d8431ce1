"""What the vendors' compilers make of the suite's own programs, against what is known of them.

The tests that need a compiler run where its wheel is installed (`pip install -e '.[aot]'`).
"""

import dataclasses
import functools
from typing import Any

import jax
import pytest

from accel_bench import compile as compiling
from accel_bench import compilers
from accel_bench.cases import Case
from accel_bench.chips import CHIPS
from accel_bench.hlo import analysis
from accel_bench.network import Span
from accel_bench.target import can_compile_for, parse
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import make_mesh
from models import costs
from models.sizes import SIZES

TPU, GPU = "tpu:v5e:2x2", "gpu:h100_sxm:4"


def _missing(text: str) -> bool:
    found = compilers.find(parse(text))
    return bool(found.missing or found.mismatch)


needs_tpu = pytest.mark.skipif(_missing(TPU), reason="the TPU compiler is not installed")
needs_gpu = pytest.mark.skipif(_missing(GPU), reason="the GPU compiler is not installed")
ON_BOTH = [pytest.param(TPU, marks=needs_tpu), pytest.param(GPU, marks=needs_gpu)]


@functools.cache
def session(text: str, *axes: tuple[str, int]) -> compiling.Session:
    return compiling.start(parse(text), dict(axes))


def outcome(text, workload, params, precision="fp32", axes=()):
    return compiling.execute(session(text, *axes), Case("c", workload, params, precision))


def facts(*arguments, **named):
    found = outcome(*arguments, **named)
    assert (found.status, found.reason) == ("ok", None)
    return found.measurement.facts


def model(phase="train_step", batch=8, length=16, name="tiny", **overrides: Any):
    sizes = {"phase": phase, "model": name, "batch": batch, "length": length}
    return sizes | {"overrides": overrides}


def on_cpu(params, precision="fp32", axes=()):
    """The same program's facts, compiled for virtual CPU devices."""
    mesh = make_mesh(jax.devices("cpu")[: max(1, _product(axes))], dict(axes))
    workload = WORKLOADS["model"].builder()(WORKLOADS["model"].params(**params), precision, mesh)
    jitted = jax.jit(workload.fn, donate_argnums=workload.donate, keep_unused=True)
    text = jitted.lower(*workload.inputs).compile().as_text() or ""
    return analysis.analyse(text, dict(axes)), workload


def _product(axes):
    result = 1
    for _, size in axes:
        result *= size
    return result


@pytest.mark.parametrize("phase", ["forward", "train_step"])
def test_a_program_multiplies_what_the_formula_says_scanned_and_unrolled(phase):
    """Attention is computed whole, masked or not: `flops` and not `flops_causal`."""
    counted = {}
    for scan in (True, False):
        read, workload = on_cpu(model(phase, scan_layers=scan))
        counted[scan] = read["flops"]
        assert read["flops"] == pytest.approx(workload.work["flops"], rel=0.02)
    assert counted[True] == pytest.approx(counted[False], rel=1e-3)


@pytest.mark.parametrize("text", ON_BOTH)
def test_the_accelerators_programs_multiply_it_too(text):
    one = parse(text).platform + (":v5e:1x1" if "tpu" in text else ":h100_sxm:1")
    for scan in (True, False):
        found = facts(one, "model", model(scan_layers=scan), "bf16")
        assert found["program"]["flops_vs_work"] == pytest.approx(1.0, rel=0.02)
    again = facts(one, "model", model(remat="full"), "bf16")
    # The forward pass is done again, but for the product that no gradient needs.
    assert 1.15 < again["program"]["flops_vs_work"] < 4 / 3


@needs_tpu
@pytest.mark.parametrize("name", ["v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_the_compilers_time_of_a_large_product_is_a_little_above_the_bound(name):
    flat = len(CHIPS[name].largest) == 2
    one = f"tpu:{name}:{'1x1' if flat else '1x1x1'}"
    axes = (("data", 2),) if CHIPS[name].devices_per_chip == 2 else ()
    found = facts(one, "matmul", {"shape": "8192"}, "bf16", axes)["estimate"]
    assert found["binds"] == "compute"
    assert found["exposed_s"] == 0.0
    assert 1.0 <= found["compiler_s"] / found["bound_s"] <= 1.6


def reduced_and_gathered(text, axes, **overrides) -> dict[tuple, float]:
    """(reduce or gather, axes) -> elements a step of each device's buffers, in a train step.

    Of elements, because a TPU's compiler rounds weights to bf16 before it gathers them, where they
    are rounded for the product anyway. A reduce-scatter and an all-reduce of the same buffer reduce
    the same: which of them is taken is the compiler's choice, by size and padding.
    """
    params = model(batch=8, length=128) | {"overrides": WIDE | overrides}
    if text == "cpu":
        entries = on_cpu(params, axes=axes)[0]["collectives"]
    else:
        # One pass of the matrix unit: full fp32 is the same to the links and slow to compile.
        entries = facts(text, "model", params, "fp32_default", axes=axes)["collectives"]
    kinds = {"all-reduce": "reduce", "reduce-scatter": "reduce", "all-gather": "gather"}
    found: dict[tuple, float] = {}
    for entry in entries:
        key = (kinds.get(entry["kind"], entry["kind"]), *entry["axes"])
        found[key] = found.get(key, 0) + entry["bytes"] / {"f32": 4, "bf16": 2}[entry["dtype"]]
    return found


# Wide enough that the weights outweigh the norms, and that TPUs scatter what they reduce.
WIDE = {"width": 512, "mlp_width": 2048, "vocab_size": 4096, "num_heads": 8, "num_kv_heads": 8,
        "head_size": 64}  # fmt: skip
PARAMS = costs.param_count(dataclasses.replace(SIZES["tiny"], **WIDE))
EMBEDDING = WIDE["vocab_size"] * WIDE["width"]
PLACES = [*ON_BOTH, "cpu"]


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("text", PLACES)
def test_data_parallelism_reduces_as_much_as_the_gradient_has(text, scan):
    found = reduced_and_gathered(text, (("data", 4),), scan_layers=scan)
    assert found == {("reduce", "data"): pytest.approx(PARAMS, rel=1e-3)}


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("text", PLACES)
def test_fsdp_gathers_the_weights_twice_and_scatters_the_gradient_once(text, scan):
    """For the forward and for the backward pass; of the embedding only rows are looked up."""
    found = reduced_and_gathered(text, (("fsdp", 4),), scan_layers=scan)
    assert found == {
        ("reduce", "fsdp"): pytest.approx(PARAMS, rel=1e-3),
        ("gather", "fsdp"): pytest.approx(2 * (PARAMS - EMBEDDING), rel=0.03),
    }


@pytest.mark.parametrize("text", PLACES)
def test_each_axis_moves_its_own_share(text):
    """Half of the weights lie on each part of `model`: a device gathers and reduces half."""
    found = reduced_and_gathered(text, (("fsdp", 2), ("model", 2)))
    assert set(found) == {("reduce", "fsdp"), ("gather", "fsdp"), ("reduce", "model")}
    assert found["reduce", "fsdp"] == pytest.approx(PARAMS / 2, rel=2e-3)
    # One all-reduce of the activations after attention and MLP, forward and backward, and of what
    # the vocabulary's halves give.
    activations = (8 // 2) * 128 * WIDE["width"]
    assert 8 * activations <= found["reduce", "model"] <= 13 * activations


@needs_gpu
def test_the_arguments_of_a_70b_train_step_are_its_state():
    axes = (("fsdp", 64), ("model", 8))
    params = model(batch=64, length=128, name="llama2_70b", remat="full")
    found = facts("gpu:h100_sxm:64x8", "model", params, "mixed_bf16", axes)
    state = costs.train_state_bytes(SIZES["llama2_70b"])
    assert found["state_bytes"] == state
    assert found["memory"]["arguments"] * 512 == pytest.approx(state, rel=0.01)
    assert found["memory"]["fits"] is True


@pytest.mark.parametrize("text", ON_BOTH)
def test_what_does_not_fit_says_by_how_much(text):
    one = "tpu:v5e:1x1" if "tpu" in text else "gpu:h100_sxm:1"
    found = outcome(one, "matmul", {"shape": "262144"}, "bf16")
    assert found.status == "oom_compile"
    memory = found.measurement.facts["memory"]
    # Two operands and a result of 2^37 bytes each.
    assert memory["needed"] == pytest.approx(3 * 2**37, rel=0.01)
    assert memory["usable"] < CHIPS[found.target["chip"]].memory_gb * 2**30
    assert memory["headroom"] == memory["usable"] - memory["needed"]
    assert f"{memory['needed'] / 2**30:.4g} GiB on each device" in (found.reason or "")


@pytest.mark.parametrize(
    ("message", "sizes"),
    [
        ("memory required for HLO temporaries (18.17G) exceeds available HBM (15.75G).",
         (int(18.17 * 2**30), int(15.75 * 2**30))),
        ("Ran out of memory in memory space hbm. Used 22.76G of 15.75G hbm. Exceeded by 7.01G.",
         (int(22.76 * 2**30), int(15.75 * 2**30))),
        ("Used 512.0M of 1.5T hbm", (512 << 20, int(1.5 * 2**40))),
        ("Used 20M of 16M vmem", (None, None)),
        ("something else ran out", (None, None)),
    ],
)  # fmt: skip
def test_sizes_are_read_from_the_compilers_refusal(message, sizes):
    assert compiling.parse_too_big(message) == sizes


@needs_tpu
@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if can_compile_for(c, "tpu")])
def test_every_tpu_generation_is_described_from_one_chip_to_512(name):
    chip = CHIPS[name]
    large = "16x16" if len(chip.largest) == 2 else "8x8x8"
    large += "*2" if name in ("v5e", "v6e") else ""
    for text in (f"tpu:{name}:1x1" + "x1" * (len(chip.largest) - 2), f"tpu:{name}:{large}"):
        devices = compiling.describe(parse(text))
        assert len(devices) == parse(text).num_devices
        assert devices[0].device_kind in chip.device_kinds
    assert len(devices) >= 512


@needs_gpu
@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if can_compile_for(c, "gpu")])
def test_every_nvidia_gpu_is_described_and_compiled_for_or_refused_with_a_reason(name):
    assert len(compiling.describe(parse(f"gpu:{name}:64x8"))) == 512
    found = outcome(f"gpu:{name}:1", "matmul", {"shape": "256"})
    if found.status == "unsupported":
        assert float(CHIPS[name].capability or 0) < 7.5
        assert "CUDA 12 needs pip install jax-cuda12-plugin" in (found.reason or "")
    else:
        assert found.status == "ok"
        assert found.measurement.facts["program"]["flops"] == 2 * 256**3


@needs_gpu
def test_operands_that_the_compiler_widened_are_marked():
    assert "emulated" in facts("gpu:t4:1", "matmul", {"shape": "1024"}, "bf16")["flags"]
    assert "emulated" not in facts("gpu:l4:1", "matmul", {"shape": "1024"}, "bf16")["flags"]


@pytest.mark.parametrize("text", ON_BOTH)
def test_products_compiled_as_other_arithmetic_make_no_ratio(text):
    one = "tpu:v5e:1x1" if "tpu" in text else "gpu:h100_sxm:1"
    params = model("decode", batch=1, length=64, num_kv_heads=4)
    read = facts(one, "model", params, "bf16")["program"]
    assert read["flops_vs_work"] is None
    assert "the rest is other arithmetic" in read["unknown"][-1]


@needs_gpu
def test_where_a_group_lies_is_read_from_the_mesh():
    devices = compiling.describe(parse("gpu:h100_sxm:4x8"))
    mesh = make_mesh(devices, {"fsdp": 4, "model": 8})
    spec = parse("gpu:h100_sxm:4x8")
    assert compiling.span(mesh, ["model"], spec) == Span({}, 8, hosts=1)
    assert compiling.span(mesh, ["fsdp"], spec) == Span({}, 4, hosts=4)
    assert compiling.span(mesh, ["fsdp", "model"], spec) == Span({}, 32, hosts=4)


@needs_tpu
def test_an_axis_lies_along_the_torus():
    spec = parse("tpu:v5p:4x4x4")
    mesh = make_mesh(compiling.describe(spec), {"fsdp": 16, "model": 4})
    spans = {axis: compiling.span(mesh, [axis], spec).links for axis in ("fsdp", "model")}
    assert list(spans["model"].values()) == [2]  # neighbours of one ring
    assert list(spans["fsdp"].values()) == [2, 2]
    assert not set(spans["model"]) & set(spans["fsdp"])
    spec = parse("tpu:v5e:4x4")  # closed only where it is 16 long
    flat = compiling.span(make_mesh(compiling.describe(spec), {"data": 16}), ["data"], spec)
    assert flat.links == {0: 1, 1: 1}
    spec = parse("tpu:v5e:2x2*2")
    two = compiling.span(make_mesh(compiling.describe(spec), {"data": 8}), ["data"], spec)
    assert two.slices == 2


@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if can_compile_for(c, "gpu")])
def test_a_gpus_description_holds_its_figures(name):
    chip = CHIPS[name]
    text = compiling.gpu_config(chip)
    for value in (chip.cores, chip.cache_bytes, chip.memory_bytes, chip.clock_ghz):
        assert value is not None
        assert f": {value} " in text
    assert "None" not in text
    assert text.count("{") == text.count("}")


def test_cases_without_products_or_programs_are_known():
    classes = {name: spec.params for name, spec in WORKLOADS.items()}
    assert not classes["transfer"](direction="h2d", bytes=4096).has_program
    assert not classes["memory"](op="latency", bytes=1 << 20).has_program
    assert classes["memory"](op="triad", bytes=1 << 20).has_program
    assert dataclasses.is_dataclass(classes["matmul"])
