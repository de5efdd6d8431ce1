import jax.numpy as jnp
import pytest
from hlo_texts import facts, program, text_of


def entry_bytes(body: str, others: str = "") -> int | None:
    found = facts(program(body, others))
    assert not found["unknown"]
    return found["bytes"]


def test_operands_are_read_and_results_written_in_main_memory_only():
    a = "  %a = f32[1024]{0} parameter(0)\n"
    assert entry_bytes(a + "  ROOT %b = f32[1024]{0} add(%a, %a)") == 2 * 4096
    assert entry_bytes(a + "  ROOT %b = f32[1024]{0:S(1)} negate(%a)") == 4096
    assert entry_bytes(a + "  ROOT %b = f32[2,512]{1,0} bitcast(%a)") == 0
    copy = (
        "  %s = (f32[1024]{0:S(1)}, f32[1024]{0}, u32[]{:S(2)}) copy-start(%a)\n"
        "  ROOT %d = f32[1024]{0:S(1)} copy-done(%s)"
    )
    assert entry_bytes(a + copy) == 4096
    part = (
        "  %s = ((f32[1024]{0}), f32[256]{0:S(1)}, s32[]{:S(2)}) slice-start(%a), slice={[0:256]}\n"
        "  ROOT %d = f32[256]{0:S(1)} slice-done(%s)"
    )
    assert entry_bytes(a + part) == 1024


SLICES = """%cut (p: f32[8,1024], i: s32[]) -> f32[1,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  %z = s32[] constant(0)
  %b = f32[8,1,1024]{2,1,0} bitcast(%p)
  ROOT %s = f32[1,1,1024]{2,1,0} dynamic-slice(%b, %i, %z, %z), dynamic_slice_sizes={1,1,1024}
}

%handed (p: f32[8,1024]) -> f32[8192] {
  %p = f32[8,1024]{1,0} parameter(0)
  ROOT %b = f32[8192]{0} bitcast(%p)
}

%nested (p: f32[8,1024]) -> f32[8192] {
  %p = f32[8,1024]{1,0} parameter(0)
  %f = f32[8192]{0} fusion(%p), kind=kLoop, calls=%handed
  ROOT %n = f32[8192]{0} negate(%f)
}

%laid (p: f32[8,1024]) -> f32[8,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  ROOT %c = f32[8,1024]{0,1} copy(%p)
}

%relaid (p: f32[8,1024]) -> f32[8,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  ROOT %f = f32[8,1024]{0,1} fusion(%p), kind=kLoop, calls=%laid
}

%cut_relaid (p: f32[8,1024], i: s32[]) -> f32[1,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  %i = s32[]{:S(6)} parameter(1)
  %z = s32[] constant(0)
  %f = f32[8,1024]{0,1} fusion(%p), kind=kLoop, calls=%laid
  ROOT %s = f32[1,1024]{0,1} dynamic-slice(%f, %i, %z), dynamic_slice_sizes={1,1024}
}

%put (p: f32[8,1024], u: f32[1,1024], i: s32[]) -> f32[8,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  %u = f32[1,1024]{1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  %z = s32[] constant(0)
  ROOT %d = f32[8,1024]{1,0} dynamic-update-slice(%p, %u, %i, %z)
}"""
INPUTS = """  %p = f32[8,1024]{1,0} parameter(0)
  %u = f32[1,1024]{1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  %z = s32[]{:S(6)} parameter(3)
"""


@pytest.mark.parametrize(
    ("root", "rows"),
    [
        ("f32[1,1024]{1,0} dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,1024}", 2),
        ("f32[1,1024]{1,0} slice(%p), slice={[0:1], [0:1024]}", 2),
        ("f32[8,1024]{1,0} dynamic-update-slice(%p, %u, %i, %z)", 2),
        ("f32[1,1024]{1,0} fusion(%p, %i), kind=kLoop, calls=%cut", 2),
        ("f32[8,1024]{1,0} fusion(%p, %u, %i), kind=kLoop, calls=%put", 2),
        ("f32[8192]{0} fusion(%p), kind=kLoop, calls=%nested", 16),
        ("f32[8,1024]{0,1} fusion(%p), kind=kLoop, calls=%relaid", 16),
        ("f32[1,1024]{0,1} fusion(%p, %i), kind=kLoop, calls=%cut_relaid", 2),
    ],
)
def test_a_slice_touches_no_more_than_it_needs(root, rows):
    assert entry_bytes(f"{INPUTS}  ROOT %r = {root}", SLICES) == rows * 4096


def test_a_streaming_kernel_moves_what_it_must():
    x = jnp.ones((1 << 20,))
    found = facts(text_of(lambda x, y: x + 2 * y, x, x))
    assert found["bytes"] == 3 * x.nbytes


def test_a_slice_of_negative_size_in_a_fusion_gives_no_figure():
    odd = SLICES.replace("f32[1,1,1024]{2,1,0} dynamic-slice", "f32[1,-1,1024] dynamic-slice")
    root = "  ROOT %r = f32[1,1024]{1,0} fusion(%p, %i), kind=kLoop, calls=%cut"
    assert facts(program(INPUTS + root, odd))["bytes"] is None
