import itertools

import jax
import jax.numpy as jnp
import pytest
from hlo_texts import nested_loops, text_of
from hypothesis import given
from hypothesis import strategies as st

from accel_bench.hlo.loops import trip_count
from accel_bench.hlo.runs import executions
from accel_bench.hlo.text import Module, parse


def loop(start, direction, limit, step, place="condition", swapped=False, known="") -> str:
    """A while loop as TPU and CPU print it, its limit standing in one of several places."""
    operands = ("%limit", "%i") if swapped else ("%i", "%limit")
    if swapped:
        direction = direction.translate(str.maketrans("LG", "GL"))
    bound = {
        "condition": f"%limit = s32[]{{:T(128)}} constant({limit})",
        "fusion": f"%limit = s32[] constant({limit})",
        "carried": "%limit = s32[] get-tuple-element(%c), index=2",
    }[place]
    test = f"compare({', '.join(operands)}), direction={direction}"
    if place == "fusion":
        test = f"fusion({', '.join(operands)}), kind=kLoop, calls=%compare"
    return f"""HloModule m, is_scheduled=true

%add (a: s32[], b: s32[]) -> s32[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %s = s32[] add(%b, %a)
}}

%compare (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %s = pred[] compare(%a, %b), direction={direction}
}}

%body (b: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {{
  %b = (s32[], f32[4]{{0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[4]{{0}} get-tuple-element(%b), index=1
  %n = s32[] get-tuple-element(%b), index=2
  %copy = s32[] copy(%i)
  %one = s32[] constant({step})
  %next = s32[] fusion(%copy, %one), kind=kLoop, calls=%add
  ROOT %t = (s32[], f32[4]{{0}}, s32[]) tuple(%next, %x, %n)
}}

%condition (c: (s32[], f32[4], s32[])) -> pred[] {{
  %c = (s32[], f32[4]{{0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  {bound}
  ROOT %lt = pred[] {test}
}}

ENTRY %main (p: f32[4]) -> f32[4] {{
  %p = f32[4]{{0}} parameter(0)
  %zero = s32[] constant({start})
  %start = s32[] copy(%zero)
  %end = s32[] constant({limit})
  %t = (s32[], f32[4]{{0}}, s32[]) tuple(%start, %p, %end)
  %w = (s32[], f32[4]{{0}}, s32[]) while(%t), condition=%condition, body=%body{known}
  ROOT %r = f32[4]{{0}} get-tuple-element(%w), index=1
}}
"""


def trips(module: Module) -> list[int | None]:
    loops = [(c, i) for c, i in module.instructions() if i.opcode == "while"]
    return [trip_count(module, computation, found)[0] for computation, found in loops]


SMALL = st.integers(-20, 20)
COMPARE = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "NE": lambda a, b: a != b,
    "EQ": lambda a, b: a == b,
}


@given(
    start=SMALL,
    direction=st.sampled_from(sorted(COMPARE)),
    limit=SMALL,
    step=st.integers(-5, 5).filter(bool),
    place=st.sampled_from(["condition", "fusion", "carried"]),
    swapped=st.booleans(),
)
def test_trips_are_those_of_running_the_loop(start, direction, limit, step, place, swapped):
    expected, i = 0, start
    while COMPARE[direction](i, limit) and expected <= 100:
        expected, i = expected + 1, i + step
    module = parse(loop(start, direction, limit, step, place, swapped))
    assert trips(module) == [expected if expected <= 100 else None]
    run = executions(module)
    if expected <= 100:
        assert run["body"].count == run["add"].count == expected
        assert run["condition"].count == expected + 1
    else:
        assert run["body"].count is None
        assert run["body"].reason and "leaves the range of its type" in run["body"].reason
    assert run["add"].fused and not run["body"].fused


def test_a_counter_that_is_compared_after_a_sum():
    """A loop `while i + 3 < 10` from 0 in steps of 2."""
    text = loop(0, "LT", 10, 2).replace(
        "  ROOT %lt = pred[] compare(%i, %limit)",
        "  %three = s32[] constant(3)\n  %sum = s32[] add(%i, %three)\n"
        "  ROOT %lt = pred[] compare(%sum, %limit)",
    )
    assert trips(parse(text)) == [4]


def test_a_limit_that_moves_is_no_limit():
    text = loop(0, "LT", 10, 1, "carried").replace("tuple(%next, %x, %n)", "tuple(%next, %x, %m)")
    text = text.replace("  %copy = s32", "  %m = s32[] subtract(%n, %one)\n  %copy = s32")
    assert trips(parse(text)) == [None]


KNOWN = ', backend_config={"known_trip_count":{"n":"7"}}'


def why(text: str) -> str:
    """Why the trips of a text's loop are unknown."""
    module = parse(text)
    ((computation, found),) = [(c, i) for c, i in module.instructions() if i.opcode == "while"]
    count, reason = trip_count(module, computation, found)
    assert count is None
    return reason or ""


def test_the_compilers_own_trip_count_is_believed_where_the_text_does_not_tell_it():
    """Not where it tells another, nor of unsigned counters: those may wrap."""
    escaped = r', backend_config="{\"known_trip_count\":{\"n\":\"7\"}}"'
    for known in (KNOWN, escaped):
        text = loop(0, "LT", 9, 1, known=known)
        hidden = text.replace("constant(0)", "negate(%q)")
        assert trips(parse(hidden)) == [7]
        assert "cannot be told" in why(hidden.replace("s32", "u32"))
        assert "counts 7 trips, its counter makes 9" in why(text)


@pytest.mark.parametrize("known", ["", KNOWN])
@pytest.mark.parametrize(
    ("kind", "start", "direction", "limit", "step"),
    [
        ("u32", 9, "GT", 0, 4294967292),
        ("u8", 0, "LT", 250, 100),
        ("s8", 0, "LT", 120, 100),
        ("s8", 0, "LE", 127, 1),
        ("u8", 9, "GE", 0, 255),
        ("s32", 0, "NE", 10, 3),
    ],
)
def test_a_counter_that_wraps_is_unknown(kind, start, direction, limit, step, known):
    text = loop(start, direction, limit, step, known=known).replace("s32", kind)
    assert "leaves the range of its type" in why(text)


@pytest.mark.parametrize(
    ("kind", "start", "direction", "limit", "step", "count"),
    [
        ("u8", 250, "GE", 60, 156, 2),  # 250, 150; then 50
        ("u32", 9, "GT", 0, 4294967293, 3),
        ("u8", 5, "LT", 255, 50, 5),
        ("u8", 5, "LT", 255, 10, 25),
        ("s8", 0, "LT", 120, 20, 6),
    ],
)
def test_a_counter_within_its_type_is_counted(kind, start, direction, limit, step, count):
    text = loop(start, direction, limit, step).replace("s32", kind)
    assert trips(parse(text)) == [count]


@given(st.data(), st.sampled_from(["u8", "s8"]), st.sampled_from(sorted(COMPARE)))
def test_a_count_of_trips_is_that_of_a_loop_that_wraps(data, kind, direction):
    low = -128 if kind == "s8" else 0
    start, limit, step = (data.draw(st.integers(low, low + 255)) for _ in range(3))
    expected, i, wrapped = 0, start, False
    while COMPARE[direction](i, limit) and expected <= 256:
        i, before = (i + step - low) % 256 + low, i
        wrapped |= i != before + (step + 128) % 256 - 128
        expected += 1
    text = loop(start, direction, limit, step).replace("s32", kind)
    if step and not wrapped:
        assert trips(parse(text)) == [expected]
    else:
        assert trips(parse(text)) in ([None], [expected])


@pytest.mark.parametrize(("kind", "start", "step"), [(jnp.uint32, 10, -3), (jnp.uint8, 0, 100)])
def test_counters_that_the_compiler_miscounts_are_unknown(kind, start, step):
    def count(x):
        def goes(carried):
            return carried[0] > 0 if step < 0 else carried[0] < 250

        def once(carried):
            moved = carried[0] - kind(-step) if step < 0 else carried[0] + kind(step)
            return moved, jnp.tanh(carried[1])

        return jax.lax.while_loop(goes, once, (kind(start), x))

    text = text_of(count, jnp.ones(4))
    assert "known_trip_count" in text
    assert "leaves the range of its type" in why(text)


@pytest.mark.parametrize("known", ["", KNOWN])
@pytest.mark.parametrize(
    ("carried", "compared", "clear"),
    [
        ("s32", "s64", True),
        ("u8", "u32", True),
        ("u8", "s16", True),
        ("s32", "s32", True),
        ("s32", "s8", False),
        ("u32", "s32", False),
        ("s32", "u32", False),
        ("s8", "u16", False),
        ("u32", "u16", False),
        ("s32", "f32", False),
        ("f32", "s32", False),
    ],
)
def test_a_conversion_must_keep_every_number(carried, compared, clear, known):
    text = loop(0, "LT", 7, 1, known=known).replace("s32", carried)
    text = text.replace(f"%limit = {carried}", f"%limit = {compared}").replace(
        "  ROOT %lt = pred[] compare(%i, ",
        f"  %j = {compared}[] convert(%i)\n  ROOT %lt = pred[] compare(%j, ",
    )
    if clear:
        assert trips(parse(text)) == [7]
    elif not known or carried != "f32":
        assert f"a conversion to {compared} may change" in why(text)


def test_a_sum_may_wrap_before_it_is_converted():
    text = (
        loop(0, "LT", 200, 1)
        .replace("s32", "s8")
        .replace(
            "  ROOT %lt = pred[] compare(%i, ",
            "  %sum = s8[] add(%i, %far)\n  %far = s8[] constant(100)\n"
            "  %j = s32[] convert(%sum)\n  ROOT %lt = pred[] compare(%j, ",
        )
    )
    assert "a conversion to s32 may change" in why(text)


@pytest.mark.parametrize("hidden", [False, True])
def test_loops_within_loops_multiply(hidden):
    """Also without the compiler's own count, which a TPU's text does not have."""
    text = nested_loops()
    module = parse(text.replace("known_trip_count", "hidden") if hidden else text)
    assert sorted(trips(module), key=str) == [3, 5]
    times = executions(module)
    dots = [times[c.name] for c, i in module.instructions() if i.opcode == "dot"]
    assert [run.count for run in dots] == [15]


def test_a_loop_whose_end_depends_on_data_is_unknown():
    def grow(x):
        return jax.lax.while_loop(lambda a: a.sum() < 1e9, lambda a: a @ a, x)

    module = parse(text_of(grow, jnp.ones((64, 64))))
    assert trips(module) == [None]
    body = next(c for c, i in module.instructions() if i.opcode == "dot")
    assert executions(module)[body.name].count is None


def test_scalar_functions_are_not_run_and_branches_may_be():
    def fn(x):
        y = jax.lax.cond(x.sum() > 0, lambda a: a @ a, lambda a: jnp.sin(a), x)
        return jnp.sort(y).sum()

    module = parse(text_of(fn, jnp.ones((64, 64))))
    times = executions(module)
    branches = [i for _, i in module.instructions() if i.opcode == "conditional"]
    for name in itertools.chain.from_iterable(branches[0].called.values()):
        assert times[name].count is None
        assert "which branch runs is not in the text" in (times[name].reason or "")
    scalar = {
        n
        for _, i in module.instructions()
        if i.opcode in ("reduce", "sort")
        for n in i.called.get("to_apply", ())
    }
    assert scalar and not scalar & times.keys()


def test_runs_from_several_places_add_up():
    text = "%f (p: f32[]) -> f32[] {\n  ROOT %p = f32[] parameter(0)\n}\n\n"
    text += "ENTRY %a (p: f32[]) -> f32[] {\n  %p = f32[] parameter(0)\n"
    text += "  %x = f32[] call(%p), to_apply=%f\n  ROOT %y = f32[] call(%x), to_apply=%f\n}\n"
    assert executions(parse(text))["f"].count == 2


def test_a_computation_that_calls_itself_is_survived():
    text = "ENTRY %a (p: f32[]) -> f32[] {\n  ROOT %x = f32[] call(%p), to_apply=%a\n}\n"
    assert executions(parse(text))["a"].count is None


def test_the_only_branch_of_a_conditional_runs():
    text = "%f (p: f32[]) -> f32[] {\n  ROOT %p = f32[] parameter(0)\n}\n\n"
    text += "ENTRY %a (i: s32[], p: f32[]) -> f32[] {\n"
    text += "  ROOT %x = f32[] conditional(%i, %p), branch_computations={%f}\n}\n"
    assert executions(parse(text))["f"].count == 1
