import math
import time

import numpy as np
import pytest
from hlo_texts import line, nested_loops
from hypothesis import given
from hypothesis import strategies as st

from accel_bench.hlo.runs import executions
from accel_bench.hlo.shapes import Shape, shapes
from accel_bench.hlo.text import parse

TYPES = {"f32": 32, "bf16": 16, "f8e4m3fn": 8, "s4": 4, "u8": 8, "c128": 128, "f4e2m1fn": 4}
TILES = ["", ":T(8,128)(2,1)"]


@st.composite
def arrays_of_any_layout(draw) -> Shape:
    dims = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    order = ",".join(str(i) for i in draw(st.permutations(range(len(dims)))))
    layout = order + draw(st.sampled_from(TILES))
    space = draw(st.sampled_from([0, 1, 5]))
    return Shape(draw(st.sampled_from(sorted(TYPES))), dims, space, layout or None)


def written(shape: Shape) -> str:
    """A shape as XLA prints it on a TPU."""
    space = f"S({shape.memory_space})" if shape.memory_space else ""
    if space and ":" not in (shape.layout or ""):
        space = f":{space}"
    dims = ",".join(str(dim) for dim in shape.dims)
    return f"{shape.element_type}[{dims}]{{{shape.layout or ''}{space}}}"


@given(st.lists(arrays_of_any_layout(), min_size=1, max_size=7))
def test_shapes_are_read_as_they_are_written(arrays):
    texts = [written(array) for array in arrays]
    texts = [f"/*index={i}*/{text}" if i == 5 else text for i, text in enumerate(texts)]
    nested = f"({texts[0]}, ({', '.join(texts[1:])}))"
    found = line(f'  ROOT %a.1 = {nested} custom-call(%x, %y), custom_call_target="f"')
    assert found.shapes == tuple(arrays)
    assert (found.opcode, found.operands, found.root) == ("custom-call", ("x", "y"), True)
    for array in arrays:
        assert array.bytes == math.ceil(math.prod(array.dims) * TYPES[array.element_type] / 8)


@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_row_major_arrays_are_those_that_numpy_lays_out_so(dims, data):
    """numpy, too, takes no account of where a dimension of size 1 stands."""
    order = data.draw(st.permutations(range(len(dims))))
    back = [list(reversed(order)).index(i) for i in range(len(dims))]
    array = np.zeros([dims[i] for i in reversed(order)]).transpose(back)
    assert array.shape == tuple(dims)
    text = f"f32[{','.join(map(str, dims))}]{{{','.join(map(str, order))}:T(8,128)S(1)}}"
    assert shapes(text)[0].row_major == array.flags.c_contiguous


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bf16[8,128]{1,0:T(8,128)(2,1)}", True),
        ("bf16[8,128]{0,1:T(8,128)(2,1)}", False),
        ("bf16[8,1,128]{1,2,0}", True),
        ("f32[]{:T(128)}", True),
        ("f32[]", True),
        ("f32[7]", True),
        ("f32[7,1]", True),
        ("f32[7,2]", None),
        ("f32[7,2]{0}", None),
    ],
)
def test_orders_as_compilers_write_them(text, expected):
    assert shapes(text)[0].row_major is expected


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("pred[3,5]", 15),
        ("s4[3]", 2),
        ("f32[]", 4),
        ("f32[<=5,2]{1,0}", 40),
        ("token[]", 0),
        ("f8e8m0fnu[7]", 7),
        ("novel[7]", None),
        ("f32[2,-3]", None),
        ("pred[-2,-3]", None),
    ],
)
def test_bytes_of_a_shape(text, size):
    (shape,) = shapes(text)
    assert shape.bytes == size


def test_an_instruction_of_a_tpu():
    found = line(
        "  %copy-start = (bf16[2048,4096]{1,0:T(8,128)(2,1)S(1)}, bf16[2048,4096]{1,0:T(8,128)}"
        ", u32[]{:S(2)}) copy-start(%param), cross_program_prefetch_index=0"
    )
    assert [shape.memory_space for shape in found.shapes] == [1, 0, 2]
    assert found.shapes[0].dims == (2048, 4096)
    assert found.operands == ("param",)
    assert found.attribute("cross_program_prefetch_index") == "0"


def test_strings_braces_and_commas_do_not_confuse():
    found = line(
        r"  p = f32[2]{0} custom-call(f32[2]{0:T(8)(2,1)} a, (f32[], s32[]) %b, /*index=5*/c), "
        r'custom_call_target="a,b{\"(", backend_config={"x":["}",{"y":"\\"}]}, window={size=2x2 '
        r'pad=0_1x0_1}, metadata={op_name="dim_labels=no, calls=%no"}, dim_labels=bf_io->bf'
    )
    assert found.operands == ("a", "b", "c")
    assert [kind and kind[0].element_type for kind in found.operand_types] == ["f32", "f32", None]
    assert found.attribute("custom_call_target") == r'"a,b{\"("'
    assert found.attribute("window") == "{size=2x2 pad=0_1x0_1}"
    assert found.attribute("dim_labels") == "bf_io->bf"
    assert found.called == {}


@pytest.fixture(scope="module")
def nested() -> str:
    return nested_loops()


JUNK = ["", "?", "  %x = what(", "  \x00 %", '  %j1 = novel[3] new-op(), strange={{("}', "// note"]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(JUNK)), max_size=6))
def test_lines_that_mean_nothing_change_nothing(nested, inserted):
    lines = nested.splitlines()
    for where, junk in inserted:
        lines.insert(where % (len(lines) + 1), junk)
    plain, odd = parse(nested), parse("\n".join(lines))
    assert executions(odd) == executions(plain)
    assert odd.entry == plain.entry
    for name, computation in plain.computations.items():
        kept = [i for i in odd.computations[name].instructions if i != "j1"]
        assert kept == list(computation.instructions)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_text_with_a_piece_missing_is_survived(nested, start, length):
    start %= len(nested)
    executions(parse(nested[:start] + nested[start + length :]))


def test_a_text_that_ends_early_has_no_entry(nested):
    module = parse(nested[: nested.rindex("}")])
    assert module.entry is None
    assert module.problems[-1].startswith("the text ends inside main")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("%f.1 (p: (f32[2]{0}, s32[])) -> (f32[2], s32[]) {", "f.1"),
        ("ENTRY main (p: f32[]) -> f32[]{ ", "main"),
        ("f {", "f"),
        ("f (p: f32[]) {", "f"),
        ("f (p: f32[]) -> f32[] { // }", None),
        ("f p: f32[] -> f32[] {", None),
        ("f (p: f32[] -> f32[] {", None),
        ("{", None),
    ],
)
def test_lines_that_open_a_computation(line, name):
    assert list(parse(line + "\n  %x = f32[] negate(%y)\n}").computations) == [name or ""]


@pytest.mark.alone
@pytest.mark.parametrize("end", ["", "{", " x"])
def test_a_hostile_line_takes_no_longer_than_its_length_asks(end):
    """Time that grew as the length squared would be minutes here."""
    started = time.perf_counter()
    parse("f (" + ") -> " * 100_000 + end)
    assert time.perf_counter() - started < 5
