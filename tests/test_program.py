import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_bench import program


def compiled(fn, *arguments):
    return jax.jit(fn).lower(*arguments).compile()


def text_of(fn, *arguments) -> str:
    return compiled(fn, *arguments).as_text() or ""


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(jnp.float32, {"f32"}), (jnp.bfloat16, {"bf16"}), (jnp.float16, {"f32"})],
)
def test_operand_types_are_those_of_the_compiled_product(dtype, expected):
    """XLA's CPU back end multiplies bf16 as such and widens fp16 to fp32."""
    x = jnp.ones((256, 256), dtype)
    text = text_of(lambda a, b: jax.lax.dot(a, b, preferred_element_type=jnp.float32), x, x)
    assert program.dot_operand_types(text) == expected


def test_operands_that_are_typed_in_place():
    text = "  %d = f32[2,2]{1,0} dot(bf16[2,2]{1,0} %a, bf16[2,2]{1,0} %b), lhs={1}"
    assert program.dot_operand_types(text) == {"bf16"}


def test_operands_of_a_librarys_product():
    text = "\n".join(
        [
            "ENTRY %main (a: f8e5m2[2,2]) -> f32[2,2] {",
            "  %a = f8e5m2[2,2]{1,0} parameter(0)",
            "  %wide = f16[2,2]{1,0} convert(%a)",
            "  %scale = f32[] constant(1)",
            '  %p = f32[2,2] custom-call(%wide, %wide, %scale), custom_call_target="__cublas$gemm"',
            '  %q = f32[2,2]{1,0} custom-call(%scale), custom_call_target="Sharding"',
            "}",
        ]
    )
    assert program.dot_operand_types(text) == {"f16"}


def test_names_do_not_leak_from_one_computation_to_the_next():
    text = "\n".join(
        [
            "%one (p: bf16[2]) -> bf16[2] {",
            "  %x = bf16[2] parameter(0)",
            "}",
            "ENTRY %two (p: f32[2]) -> f32[2] {",
            "  %y = f32[2] dot(%x, %x)",
            "}",
        ]
    )
    assert program.dot_operand_types(text) == set()


@given(st.text(alphabet="abc %=[](){},.\n dotconvlui0123f", max_size=300))
def test_any_text_is_survived(text):
    assert isinstance(program.dot_operand_types(text), set)


def test_a_product_that_nobody_uses_is_no_longer_there():
    x = jnp.ones((8, 8))
    text = text_of(lambda a: (a @ a, a + a)[1], x)
    assert not program.holds(text, (r"\bdot\(",))
    text = text_of(lambda a: a @ a, x)
    assert program.holds(text, (r"\bdot\(",))


def test_memory_counts_arguments_outputs_and_aliases():
    x = jnp.ones((1024, 1024))
    sizes = program.memory(compiled(lambda a, b: a @ b, x, x))
    mib = 1 << 20
    assert sizes["arguments"] == 8 * mib
    assert sizes["outputs"] == 4 * mib
    needed = program.needed_bytes(sizes)
    assert needed is not None
    assert needed >= 12 * mib
    donated = jax.jit(lambda a: a + 1, donate_argnums=0).lower(x).compile()
    assert program.needed_bytes(program.memory(donated)) == pytest.approx(4 * mib, rel=0.01)


class Unknowing:
    def __init__(self, value):
        self.value = value

    def memory_analysis(self):
        if self.value is NotImplementedError:
            raise NotImplementedError
        return self.value


@pytest.mark.parametrize("value", [None, NotImplementedError])
def test_memory_that_is_not_known_is_null(value):
    sizes = program.memory(Unknowing(value))
    assert set(sizes.values()) == {None}
    assert program.needed_bytes(sizes) is None
