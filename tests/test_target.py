import math

import pytest

from accel_bench import target
from accel_bench.chips import CHIPS
from accel_bench.errors import RequestError
from accel_bench.target import parse


@pytest.mark.parametrize(
    ("text", "chips", "devices"),
    [
        ("tpu:v5e:4x4", 16, 16),
        ("tpu:v5e:1x1", 1, 1),
        ("tpu:v2:2x2", 4, 8),  # each core is a device
        ("tpu:v3:32x32", 1024, 2048),
        ("tpu:v4:8x8x8", 512, 512),  # megacore: two cores are one device
        ("tpu:v5p:8x8x8", 512, 512),
        ("tpu:tpu7x:2x2x1", 4, 8),
        ("tpu:v6e:16x16*2", 512, 512),
        ("gpu:h100_sxm:8", 8, 8),
        ("gpu:a100_80:4x8", 32, 32),
        ("gpu:b200:64x8", 512, 512),
    ],
)
def test_chips_and_devices_are_counted_apart(text, chips, devices):
    found = parse(text)
    assert (found.num_chips, found.num_devices) == (chips, devices)
    assert str(found) == text
    record = found.record()
    assert (record["num_chips"], record["num_devices"]) == (chips, devices)
    assert record["kind"] == "compiled"
    assert record["attached"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v5e:4x4", "write tpu:GENERATION:TOPOLOGY, as in tpu:v5e:4x4, or gpu:CHIP:COUNT"),
        ("tpu:v5e", "write tpu:GENERATION:TOPOLOGY"),
        ("cpu:x:1", "write tpu:GENERATION:TOPOLOGY"),
        ("tpu:v5:2x2", "did you mean 'v5p'"),
        ("tpu:v9:2x2", "known are tpu7x, v2, v3, v4, v5e, v5p, v6e"),
        ("gpu:h100_smx:8", "did you mean 'h100_sxm'"),
        ("gpu:mi300x:8", "mi300x is in the chip table, but nothing here compiles for it"),
        ("gpu:h100_sxm:0", "write 1 to 8, or hosts x GPUs in each, as in 4x8"),
        ("gpu:h100_sxm:16", "write 1 to 8, or hosts x GPUs in each, as in 4x8"),
        ("gpu:h100_sxm:2x9", "write 1 to 8"),
        ("tpu:v5e:3x3", "v5e has no topology '3x3': choose from 1x1, 2x2, 2x4, 4x4, 4x8, 8x8"),
        ("tpu:v5e:16x32", "to 16x16; 1x1*2 is two slices"),
        ("tpu:v5e:2x2x1", "v5e has no topology '2x2x1'"),
        ("tpu:v4:4x4", "v4 has no topology '4x4': choose from 1x1x1, 2x2x1, 2x2x2"),
        ("tpu:v5p:2x2x1*0", "v5p has no topology"),
        ("tpu:v5p:", "v5p has no topology"),
    ],
)
def test_what_is_no_target_is_refused_with_what_is_accepted(text, said):
    with pytest.raises(RequestError) as error:
        parse(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if c.platform == "tpu"])
def test_every_generation_has_one_chip_and_its_largest_slice(name):
    shapes = list(target.tpu_shapes(CHIPS[name]))
    assert math.prod(shapes[0]) == 1
    assert CHIPS[name].largest in shapes
    assert max(math.prod(s) for s in shapes) == math.prod(CHIPS[name].largest)
    assert len(shapes) == len(set(shapes))
    for shape in shapes:
        assert all(a <= b for a, b in zip(shape, CHIPS[name].largest, strict=True))


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("tpu:v5p:8x8x8", [1, 4, 8, 16, 32, 64, 128, 256, 512]),  # no slice of two chips
        ("tpu:v5e:4x4", [1, 4, 8, 16]),
        ("gpu:h100_sxm:4x8", [1, 2, 4, 8, 16, 32]),
        ("gpu:h100_sxm:3x8", [1, 2, 4, 8, 16, 24]),
    ],
)
def test_a_search_doubles_from_one_chip_to_the_target(text, counts):
    ladder = target.smaller(parse(text))
    assert [step.num_chips for step in ladder] == counts
    assert ladder[-1] == parse(text)
    for step in ladder:
        assert parse(str(step)) == step


def test_a_search_prefers_cubes():
    by_chips = {t.num_chips: t.shape for t in target.smaller(parse("tpu:v5p:8x8x8"))}
    assert by_chips[64] == (4, 4, 4)
    assert by_chips[256] == (4, 8, 8)
