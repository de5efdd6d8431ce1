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
        assert run["body"].reason and "limit cannot be told" in run["body"].reason
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


def test_the_compilers_own_trip_count_is_believed():
    known = ', backend_config={"known_trip_count":{"n":"7"}}'
    assert trips(parse(loop(0, "LT", 9, 1, known=known))) == [7]
    escaped = r', backend_config="{\"known_trip_count\":{\"n\":\"7\"}}"'
    assert trips(parse(loop(0, "LT", 9, 1, known=escaped))) == [7]


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


def test_scalar_functions_are_not_run_and_branches_are_at_most_once():
    def fn(x):
        y = jax.lax.cond(x.sum() > 0, lambda a: a @ a, lambda a: jnp.sin(a), x)
        return jnp.sort(y).sum()

    module = parse(text_of(fn, jnp.ones((64, 64))))
    times = executions(module)
    branches = [i for _, i in module.instructions() if i.opcode == "conditional"]
    for name in itertools.chain.from_iterable(branches[0].called.values()):
        assert times[name].count == 1
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
