import itertools
import math

import numpy as np
import pytest
from hlo_texts import line
from hypothesis import given
from hypothesis import strategies as st

from accel_bench.hlo.groups import find_groups, mesh_axes
from accel_bench.hlo.text import Instruction


def collective(attributes: str) -> Instruction:
    return line(f"%r = f32[4]{{0}} all-reduce(%x), channel_id=1, {attributes}, to_apply=%add")


FACTORS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(FACTORS, st.randoms(use_true_random=False), st.data())
def test_iota_groups_are_reshape_and_transpose(dims, random, data):
    order = list(range(len(dims)))
    random.shuffle(order)
    count = math.prod(dims)
    size = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    expected = np.arange(count).reshape(dims).transpose(order).reshape(-1, size)
    shape = ",".join(str(dim) for dim in dims)
    text = f"replica_groups=[{count // size},{size}]<=[{shape}]T({','.join(map(str, order))})"
    assert find_groups(collective(text), count) == [tuple(row) for row in expected.tolist()]
    assert find_groups(collective(text), count + 1) is None


@given(FACTORS, st.randoms(use_true_random=False), st.data())
def test_groups_of_a_mesh_run_along_its_axes(dims, random, data):
    """A list of devices moves the groups; an axis split in parts gives groups along a part."""
    count = math.prod(dims)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(dims) - 1))))
    names = [f"'axis_{i}'" for i in range(len(dims))]
    order = list(range(count))
    random.shuffle(order)
    listed = data.draw(st.booleans())
    ids = f", device_ids=({','.join(map(str, order))})" if listed else ""
    mesh = ",".join(f"{name}={dim}" for name, dim in zip(names, dims, strict=True))
    text = f"replica_groups=mesh[{mesh}]{ids} {{{','.join(names[i] for i in chosen)}}}"
    devices = np.asarray(order if listed else range(count)).reshape(dims)
    moved = np.moveaxis(devices, chosen, range(-len(chosen), 0)) if chosen else devices
    expected = moved.reshape(-1, math.prod(dims[i] for i in chosen))
    assert find_groups(collective(text), count) == [tuple(row) for row in expected.tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("replica_groups={{0,1},{2,3}}", [(0, 1), (2, 3)]),
        ("replica_groups={}", [(0, 1, 2, 3)]),
        ("replica_groups=[2,2]<=[4]", [(0, 1), (2, 3)]),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", [(0, 2), (1, 3)]),
        (
            "replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=2], device_ids=([2,2]T(1,0)) "
            "{'axis_0'}, use_global_device_ids=true",
            [(0, 1), (2, 3)],
        ),
        ("replica_groups=mesh['a'=4] {'a':(1)2}", [(0, 2), (1, 3)]),
        ("replica_groups=mesh['a'=4] {'a':(2)2}", [(0, 1), (2, 3)]),
        ("replica_groups=mesh['a'=8] {'a'}", None),
        ("replica_groups=[2,2]<=[8]", None),
        ("replica_groups=?", None),
        ("source_target_pairs={{0,1},{1,0}}", [(0, 1), (1, 0)]),
        ("dimensions={0}", None),
    ],
)
def test_groups_as_compilers_write_them(text, expected):
    assert find_groups(collective(text), 4) == expected


@given(FACTORS, st.randoms(use_true_random=False), st.data())
def test_axes_are_found_again_and_nothing_else_passes(dims, random, data):
    axes = {f"a{i}": dim for i, dim in enumerate(dims)}
    devices = np.arange(math.prod(dims)).reshape(dims)
    by_axes = {}
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(len(dims)), n) for n in range(len(dims) + 1)
    ):
        moved = np.moveaxis(devices, chosen, range(-len(chosen), 0)) if chosen else devices
        rows = moved.reshape(-1, math.prod(dims[i] for i in chosen)).tolist()
        named = tuple(f"a{i}" for i in chosen if dims[i] > 1)
        by_axes[frozenset(frozenset(row) for row in rows)] = named
        for row in rows:
            random.shuffle(row)
        random.shuffle(rows)
        assert mesh_axes([tuple(row) for row in rows], axes) == named
    size = data.draw(
        st.sampled_from([n for n in range(1, devices.size + 1) if devices.size % n == 0])
    )
    order = devices.flatten().tolist()
    random.shuffle(order)
    other = [tuple(order[i : i + size]) for i in range(0, len(order), size)]
    assert mesh_axes(other, axes) == by_axes.get(frozenset(frozenset(g) for g in other))


def test_a_permutation_runs_along_every_axis_that_a_pair_crosses():
    axes = {"data": 2, "model": 4}
    ring = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)]
    assert mesh_axes(ring, axes, permute=True) == ("model",)
    assert mesh_axes([(0, 4)], axes, permute=True) == ("data",)
    assert mesh_axes([(0, 1), (0, 4)], axes, permute=True) == ("data", "model")
    assert mesh_axes([(0, 8)], axes, permute=True) is None
