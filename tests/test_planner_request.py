"""What may be asked of a plan, and what is taken where nobody asked."""

import dataclasses
import subprocess
import sys

import pytest

from accel_bench.chips import CHIPS
from accel_bench.errors import RequestError
from accel_bench.planner import request as requests
from accel_bench.planner.candidates import enumerate_for, usable_bytes
from models import costs

GIB = 2**30


def make(model="llama2_70b", tokens=2e12, named="gpu:h100_sxm:64x8", **fields):
    return requests.make(model=model, tokens=tokens, named=named, **fields)


def test_planning_needs_no_jax():
    code = (
        "import sys, accel_bench.planner.command as c, accel_bench.planner.show; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "plan needs --model=NAME"),
        ({"model": "llama2_7"}, "unknown model 'llama2_7': did you mean 'llama2_7b'?"),
        ({"tokens": None}, "plan needs --tokens=N"),
        ({"tokens": 0.5}, "--tokens=0.5: a whole number from 1"),
        ({"tokens": float("nan")}, "--tokens=nan: a whole number"),
        ({"named": None}, "plan needs --targets"),
        ({"named": "gpu:h100:8"}, "unknown gpu in --targets=gpu:h100:8"),
        ({"batch_tokens": 4e6}, "is no multiple of the 4096 tokens of a sequence: choose such as"),
        ({"batch_tokens": -1}, "--batch_tokens=-1"),
        ({"length": 0}, "--length=0"),
        ({"precisions": "fp8_e4m3"}, "nothing is trained in 8 bits"),
        ({"precisions": "bf16,fp32"}, "a plan is for one precision"),
        ({"precisions": "bf61"}, "unknown precision 'bf61'"),
        ({"axes": "fsdp:7"}, "needs 7 devices, but there are 512"),
        ({"prices": "h100_sxm"}, "--prices=h100_sxm: write CHIP=MONEY"),
        ({"prices": "h100_sxm=-1"}, "--prices=h100_sxm=-1: write CHIP=MONEY"),
        ({"prices": "h100=2"}, "unknown chip 'h100'"),
        ({"compiles": 0}, "--plan_compiles=0"),
        ({"budget_s": float("inf")}, "--plan_budget_s=inf"),
    ],
)
def test_a_wrong_request_is_one_line(change, message):
    with pytest.raises(RequestError) as error:
        make(**change)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_what_nobody_asked_for_is_taken_and_said():
    found = make()
    assert (found.length, found.batch_tokens) == (4096, 1 << 22)
    assert "mixed_bf16" in found.defaults[-1]
    assert len(found.defaults) == 3
    small = make("gpt2_124m", 1e10)
    assert (small.length, small.batch_tokens) == (1024, 1 << 19)
    long = make("llama3_2_1b")
    assert long.length == 8192
    asked = make(batch_tokens=1 << 20, length=2048, precisions="bf16")
    assert asked.defaults == ()
    assert asked.steps == -(-2 * 10**12 // (1 << 20))


def test_a_chip_without_bf16_trains_in_fp16():
    found = make(named="gpu:t4:1,gpu:l4:1")
    assert [found.precision_on(t.chip) for t in found.targets] == ["mixed_fp16", "mixed_bf16"]


def test_prices_are_of_chips():
    assert make(prices="v5p=4.2, h100_sxm=2.5").prices == {"v5p": 4.2, "h100_sxm": 2.5}


def meshes(found):
    return [dict(ladder.axes) for ladder in found.ladders]


def test_candidates_keep_model_parallelism_within_a_host():
    request = make(named="gpu:h100_sxm:64x8,gpu:h100_sxm:2x4,tpu:v5p:8x8x8")
    for target in request.targets:
        for axes in meshes(enumerate_for(request, target)):
            assert axes.get("model", 1) <= (target.shape[1] if target.platform == "gpu" else 8)
            product = 1
            for size in axes.values():
                product *= size
            assert product == target.num_devices


def test_every_candidate_does_the_whole_batch():
    request = make()
    found = enumerate_for(request, request.targets[0])
    rungs = [rung for ladder in found.ladders for rung in ladder.rungs]
    assert rungs
    for rung in [*rungs, *found.hopeless]:
        replicas = rung.mesh.get("data", 1) * rung.mesh.get("fsdp", 1)
        assert rung.micro * rung.passes * replicas == request.sequences
    for ladder in found.ladders:  # largest passes first
        assert [r.micro for r in ladder.rungs] == sorted(r.micro for r in ladder.rungs)[::-1]


def test_memory_by_formulas_is_the_state_divided_and_the_gradients_once_or_twice():
    request = make("llama2_7b", 1e12, "gpu:a100_80:1x8", batch_tokens=8 * 4096)
    (target,) = request.targets
    found = enumerate_for(request, target)
    one_pass = next(c for ladder in found.ladders for c in ladder.rungs if c.mesh == {"fsdp": 8})
    weights = 4 * costs.param_count(request.size)
    assert one_pass.passes == 1
    assert one_pass.memory.state == pytest.approx(3 * weights / 8, rel=1e-6)
    assert one_pass.memory.gradients == pytest.approx(weights / 8)
    several = make("llama2_7b", 1e12, "gpu:a100_80:1x8", batch_tokens=64 * 4096)
    rungs = [c for ladder in enumerate_for(several, target).ladders for c in ladder.rungs]
    two = next(c for c in rungs if c.mesh == {"fsdp": 8} and c.passes > 1)
    assert two.memory.gradients == pytest.approx(2 * weights / 8)
    assert two.accumulator == pytest.approx(weights / 8)


def test_activations_by_formula_are_divided_once_where_layers_are_and_inputs_stay_whole():
    request = make("llama2_7b", 1e12, "gpu:a100_80:1x8", batch_tokens=64 * 4096)
    rungs = enumerate_for(request, request.targets[0]).ladders
    found = {
        (c.mesh.get("model", 1), c.remat, c.micro): c.memory.activations
        for ladder in rungs
        for c in ladder.rungs
    }
    bf16 = dataclasses.replace(request.size, dtype="bfloat16")
    kept = costs.activation_bytes(bf16, 1, 4096)
    inputs = costs.activation_bytes(dataclasses.replace(bf16, remat="full"), 1, 4096)
    logits = 2 * 4 * 4096 * 32_000
    assert found[4, "none", 1] == pytest.approx((kept + logits) / 4)
    layer = kept / bf16.num_layers
    assert found[4, "full", 1] == pytest.approx(inputs + (layer + logits) / 4)
    assert found[1, "full", 1] == pytest.approx(inputs + layer + logits)


def test_what_cannot_fit_is_not_even_compiled():
    request = make(named="gpu:t4:1")
    found = enumerate_for(request, request.targets[0])
    assert found.ladders == ()
    assert {c.remat for c in found.hopeless} == {"none", "full"}
    assert all(c.memory.state > 700 * GIB for c in found.hopeless)
    assert usable_bytes(request.targets[0]) == CHIPS["t4"].memory_bytes


def test_a_vocabulary_that_an_axis_does_not_divide_is_filled_up():
    request = make("gpt3_175b", 3e11, "gpu:a100_80:64x8")
    found = enumerate_for(request, request.targets[0])
    filled = {c.vocab_size for ladder in found.ladders for c in ladder.rungs if "model" in c.mesh}
    assert filled == {50_304}


def test_a_mesh_that_was_asked_for_is_the_only_one():
    request = make(axes="data:2,fsdp:*,model:4")
    axes = meshes(enumerate_for(request, request.targets[0]))
    assert axes
    assert all(each == {"data": 2, "fsdp": 64, "model": 4} for each in axes)


def test_slices_hold_copies_and_are_joined_by_data():
    request = make("llama2_7b", 1e12, "tpu:v5e:16x16*2")
    assert {"data": 2, "fsdp": 256} in meshes(enumerate_for(request, request.targets[0]))


def test_a_batch_with_too_few_sequences_is_named():
    request = make("tiny", 1e6, "tpu:v5e:4x4", batch_tokens=8 * 64)
    found = enumerate_for(request, request.targets[0])
    assert found.ladders == ()
    assert any("batch=8 does not divide" in reason for reason in found.impossible)
