import jax.numpy as jnp
from hlo_texts import facts, program, text_of


def test_what_the_code_is_made_of():
    found = facts(text_of(lambda x: jnp.tanh(x @ x).T + 1, jnp.ones((64, 64), jnp.float32)))
    assert sum(kind["executed"] for kind in found["code"]["kernels"].values()) == 1
    assert found["code"]["instructions"] >= 4
    assert found["cycles"] is None
    assert found["cycles_without"] is None


def test_copies_are_counted_with_their_bytes():
    body = (
        "  %a = f32[256,4]{1,0} parameter(0)\n  %b = f32[256,4]{0,1} copy(%a)\n"
        "  ROOT %c = f32[4,256]{1,0} transpose(%b), dimensions={1,0}"
    )
    copies = facts(program(body))["code"]["copies"]
    assert copies == {"static": 2, "executed": 2, "bytes": 4 * 4096}


MAIN, CHIP = "f32[1024]{0:T(1024)}", "f32[1024]{0:T(1024)S(1)}"


def moved(*lines: str) -> list[tuple[int, int]]:
    """Number and bytes of the copies, then of the prefetches; %a is in main memory."""
    code = facts(program("\n".join((f"  %a = {MAIN} parameter(0)", *lines))))["code"]
    assert code["copies"]["executed"] == code["copies"]["static"]
    return [(code[kind]["static"], code[kind]["bytes"]) for kind in ("copies", "prefetches")]


def test_a_move_from_memory_to_memory_is_a_prefetch_and_no_copy():
    start = f"  %s = ({CHIP}, {MAIN}, u32[]{{:S(2)}}) copy-start(%a)"
    assert moved(start, f"  %b = {CHIP} copy-done(%s)") == [(0, 0), (1, 4096)]
    assert moved(f"  %b = {CHIP} copy(%a)") == [(0, 0), (1, 4096)]
    made = f"  %b = {CHIP} negate(%a)"
    back = f"  %s = ({MAIN}, {CHIP}, u32[]{{:S(2)}}) copy-start(%b)"
    assert moved(made, back, f"  %c = {MAIN} copy-done(%s)") == [(0, 0), (1, 4096)]


def test_a_move_within_one_memory_is_a_copy():
    """On the chip it costs no bytes of main memory."""
    start = f"  %s = ({MAIN}, {MAIN}, u32[]{{:S(2)}}) copy-start(%a)"
    assert moved(start, f"  %b = {MAIN} copy-done(%s)") == [(1, 8192), (0, 0)]
    made = f"  %b = {CHIP} negate(%a)"
    assert moved(made, f"  %c = {CHIP} copy(%b)") == [(1, 0), (0, 0)]


def test_a_copy_to_another_layout_is_no_prefetch():
    square = "  %p = f32[16,16]{1,0:T(8,128)} parameter(1)"
    assert moved(square, "  %q = f32[16,16]{0,1:T(8,128)S(1)} copy(%p)") == [(1, 1024), (0, 0)]
    assert moved(square, "  %q = f32[16,16]{1,0:T(2,128)S(1)} copy(%p)") == [(1, 1024), (0, 0)]
    turned = "  %q = f32[16,16]{1,0:T(8,128)S(1)} transpose(%p), dimensions={1,0}"
    assert moved(square, turned) == [(1, 1024), (0, 0)]


def test_a_slice_that_is_fetched_beforehand_is_a_prefetch_of_its_size():
    part = "f32[256]{0:T(256)}"
    for result, expected in ((part.replace(")}", ")S(1)}"), (1, 1024)), (part, (0, 0))):
        start = f"  %s = (({MAIN}), {result}, s32[]{{:S(2)}}) slice-start(%a), slice={{[0:256]}}"
        assert moved(start, f"  %b = {result} slice-done(%s)") == [(0, 0), expected]


def test_layouts_of_the_parameters_are_counted():
    """Parameters of other computations are not the program's; a tuple's arrays count each."""
    others = "%f (p: f32[4,2]) -> f32[4,2] {\n  ROOT %p = f32[4,2]{0,1} parameter(0)\n}"
    body = """  %a = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[16,128]{0,1:T(8,128)(2,1)} parameter(1)
  %c = f32[12,768,1]{1,2,0:T(8,128)} parameter(2)
  %d = s32[]{:T(128)} parameter(3)
  %e = f32[4,2] parameter(4)
  %g = (f32[4,2]{0,1}, f32[7]{0}) parameter(5)
  ROOT %h = f32[4,2] fusion(%e), kind=kLoop, calls=%f"""
    layouts = facts(program(body, others))["code"]["layouts"]
    assert layouts == {"row_major": 4, "other": 2, "unknown": 1}


def test_arguments_of_jax_are_row_major_here():
    text = text_of(lambda x, y: x.T @ y, jnp.ones((8, 4)), jnp.ones((8, 2)))
    assert facts(text)["code"]["layouts"] == {"row_major": 2, "other": 0, "unknown": 0}
