import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hlo_texts import TPU, TPU_ENTRY, facts, program, text_of
from hypothesis import given
from hypothesis import strategies as st

from accel_bench import hlo


@pytest.fixture(scope="module")
def train() -> str:
    def loss(w, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()

    return text_of(jax.grad(loss), jnp.ones((3, 32, 32)), jnp.ones((16, 32)))


def test_a_gradient_costs_twice_the_forward_pass(train):
    """Of the first layer's input no gradient is asked, but a loop's trips are all alike."""
    assert facts(train)["flops"] == 3 * 3 * 2 * 16 * 32 * 32


@given(st.integers(0, 20_000), st.integers(1, 20_000))
def test_a_text_with_a_piece_missing_is_survived(train, start, length):
    start %= len(train)
    facts(train[:start] + train[start + length :], x=2)


@given(st.integers(0, 20_000), st.sampled_from([TPU, TPU_ENTRY]))
def test_a_text_cut_off_is_survived_and_gives_no_figures(cut, part):
    whole = program(TPU_ENTRY, TPU)
    found = facts(whole[: cut % (len(whole) - 2)], fsdp=4)
    assert found["flops"] is None
    assert found["unknown"]


def test_a_line_that_cannot_be_read_is_told_and_changes_no_figure(train):
    lines = train.splitlines()
    lines.insert(lines.index(next(line for line in lines if line.startswith("ENTRY"))) + 1, "  %?")
    plain, odd = facts(train), facts("\n".join(lines))
    assert odd.pop("unknown") and not plain.pop("unknown")
    assert odd == plain


def test_modules_import_only_those_that_the_map_has_below_them():
    here = Path(hlo.__file__).parent
    order = re.findall(r"^    (\w+) ", hlo.__doc__ or "", re.MULTILINE)
    assert sorted([*order, "__init__"]) == sorted(path.stem for path in here.glob("*.py"))
    for place, name in enumerate(order):
        imported = re.findall(r"from accel_bench\.?(\S*) import", (here / f"{name}.py").read_text())
        assert {f"hlo.{below}" for below in order[place + 1 :]} >= set(imported)
