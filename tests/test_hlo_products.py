import math

import jax
import jax.numpy as jnp
import pytest
from hlo_texts import facts, program, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from accel_bench.hlo.products import valid_positions


@given(
    *(st.integers(1, 6) for _ in range(4)),
    st.integers(-3, 6),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_valid_positions_are_those_of_trying_each(
    output, kernel, size, stride, low, base, dilation
):
    tried = 0
    for o in range(output):
        for k in range(kernel):
            place = o * stride - low + k * dilation
            tried += place % base == 0 and 0 <= place // base < size
    assert valid_positions(output, kernel, size, stride, low, base, dilation) == tried


@settings(max_examples=25, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, 4))] * 2),
    base=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([(1, 1), (2, 1), (1, 2)]),
)
def test_a_convolution_has_the_flops_that_xla_counts(
    kernel, strides, padding, base, dilation, groups
):
    features, batches = groups
    x, w = jnp.ones((4, 6, 8, 7)), jnp.ones((8, 6 // features, *kernel))

    def fn(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            strides,
            padding,
            base,
            dilation,
            feature_group_count=features,
            batch_group_count=batches,
        )

    lowered = jax.jit(fn).lower(x, w)
    costs = lowered.cost_analysis()
    text = lowered.compiler_ir("hlo").as_hlo_text()  # type: ignore[union-attr]
    found = facts(text)
    assert found["flops"] == costs.get("flops", 0)  # type: ignore[union-attr]
    assert found["products"] == {"convolution": {"static": 1, "executed": 1}}


def test_a_tpus_product_of_batches_as_a_convolution():
    """Scores of attention, 2 x 4 heads of (2048, 64) times (64, 512); the window is mostly void."""
    text = program(
        "  %q = bf16[2,4,2048,64]{2,3,1,0:T(8,128)(2,1)} parameter(0)\n"
        "  %k = bf16[2,4,512,64]{2,3,1,0:T(8,128)(2,1)} parameter(1)\n"
        "  ROOT %c = f32[2,4,2048,512]{2,3,1,0:T(8,128)} convolution(%q, %k), window={size=2x4 "
        'stride=1x3 lhs_dilate=2x4}, dim_labels=01bf_01oi->01bf, metadata={op_name="a/b"}'
    )
    assert facts(text)["flops_by_type"] == {"bf16": 2 * 2 * 4 * 2048 * 512 * 64}


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_dot_has_two_flops_per_multiply_add(batch):
    x, y = jnp.ones((*batch, 128, 64)), jnp.ones((*batch, 64, 256))
    found = facts(text_of(lambda x, y: x @ y, x, y))
    assert found["flops"] == 2 * math.prod(batch) * 128 * 64 * 256
    assert found["flops_by_type"] == {"f32": found["flops"]}


@pytest.mark.parametrize("unroll", [1, 20])
def test_a_loop_of_products_counts_each_trip(unroll):
    w = jnp.ones((20, 64, 64))

    def layers(x, w):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w, unroll=unroll)[0]

    found = facts(text_of(layers, jnp.ones((8, 64)), w))
    assert found["flops"] == 20 * 2 * 8 * 64 * 64
    assert [loop["trips"] for loop in found["code"]["while_loops"]] == [20] * (unroll == 1)
    # A trip reads its layer of the weights and not all of them; it may copy the layer first.
    assert w.nbytes < found["bytes"] < 4 * w.nbytes


GEMM = """  %a = f8e4m3fn[16,32]{1,0} parameter(0)
  %b = f8e4m3fn[64,32]{1,0} parameter(1)
  ROOT %g = (bf16[16,64]{1,0}, s8[4096]{0}) custom-call(%a, %b), custom_call_target="TARGET" MORE"""


@pytest.mark.parametrize(
    ("target", "more", "family"),
    [
        (
            "__cublas$lt$matmul$f8",
            ', backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
            '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]}}}',
            "cublaslt",
        ),
        ("__cublas$gemm", "", "cublas"),
        ("__onednn$matmul", "", "onednn"),
    ],
)
def test_a_librarys_product(target, more, family):
    found = facts(program(GEMM.replace("TARGET", target).replace(" MORE", more)))
    assert found["flops_by_type"] == {"f8e4m3fn": 2 * 16 * 64 * 32}
    assert found["code"]["kernels"] == {family: {"static": 1, "executed": 1}}


def test_a_convolution_of_cudnn_backwards_costs_what_it_does_forwards():
    shapes = {
        "x": "f32[2,9,9,4]{3,2,1,0}",
        "w": "f32[3,3,4,8]{3,2,1,0}",
        "y": "f32[2,7,7,8]{3,2,1,0}",
    }
    forms = {"Forward": "xwy", "BackwardInput": "ywx", "BackwardFilter": "xyw"}
    flops = set()
    for name, (lhs, rhs, out) in forms.items():
        body = (
            f"  %a = {shapes[lhs]} parameter(0)\n  %b = {shapes[rhs]} parameter(1)\n"
            f"  ROOT %c = ({shapes[out]}, u8[0]{{0}}) custom-call(%a, %b), window={{size=3x3}}, "
            f'dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$conv{name}"'
        )
        flops.add(facts(program(body))["flops"])
    assert flops == {2 * 2 * 7 * 7 * 3 * 3 * 4 * 8}


@pytest.mark.parametrize(
    ("target", "flops"), [("tpu_custom_call", None), ("__cublas$gemm", None), ("TopK", 0)]
)
def test_a_kernel_that_the_text_does_not_show_is_no_number(target, flops):
    body = f'  ROOT %c = f32[8]{{0}} custom-call(), custom_call_target="{target}"'
    found = facts(program(body))
    assert found["flops"] == flops
    assert found["flops_by_type"] == (None if flops is None else {})
    assert len(found["unknown"]) == (flops is None)


def test_a_loop_without_a_known_end_makes_figures_unknown():
    def grow(x):
        return jax.lax.while_loop(lambda a: a.sum() < 1e9, lambda a: a @ a, x)

    found = facts(text_of(grow, jnp.ones((64, 64))))
    assert found["flops"] is None
    assert found["bytes"] is None
    assert found["products"] == {"dot": {"static": 1, "executed": None}}
    assert any("compares no counter" in sentence for sentence in found["unknown"])


@pytest.mark.parametrize("kind", [jnp.complex64, jnp.complex128])
def test_a_complex_multiply_add_is_four_products_and_four_sums(kind):
    with jax.enable_x64():
        x, y = jnp.ones((8, 4), kind), jnp.ones((4, 16), kind)
        found = facts(text_of(lambda x, y: x @ y, x, y))
    assert found["flops"] == 8 * 8 * 4 * 16


def test_a_branch_makes_the_figures_unknown_that_it_adds_to():
    """Of these two branches one has a product; both move bytes, and no device talks to another."""

    def fn(x):
        y = x @ x
        return jax.lax.cond(x.sum() > 0, jnp.sin, jnp.tanh, y)

    def product(x):
        return jax.lax.cond(x.sum() > 0, lambda a: a @ a, jnp.tanh, x)

    reason = "which branch runs is not in the text"
    for function, flops in ((fn, 2 * 64**3), (product, None)):
        found = facts(text_of(function, jnp.ones((64, 64))))
        assert (found["flops"], found["bytes"], found["collectives"]) == (flops, None, [])
        said = {sentence.partition(":")[0] for sentence in found["unknown"] if reason in sentence}
        assert said >= {"bytes"} and ("flops" in said) == (flops is None)


@pytest.mark.parametrize(
    "root",
    [
        "f32[-4,6] dot(%a, %b), lhs_contracting_dims={1}",
        "f32[4,-6] convolution(%a, %b), dim_labels=bf_io->bf",
        'f32[-4,-6] custom-call(%a, %b), custom_call_target="__cublas$gemm"',
    ],
)
def test_a_negative_size_gives_no_figure(root):
    body = f"  %a = f32[4,5] parameter(0)\n  %b = f32[5,6] parameter(1)\n  ROOT %c = {root}"
    found = facts(program(body))
    assert (found["flops"], found["bytes"]) == (None, None)
