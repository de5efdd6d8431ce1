import pytest

from accel_bench.errors import RequestError
from accel_bench.precision import PRECISIONS, delivered, lookup
from accel_bench.program import HLO_TYPES


def test_every_dtype_of_the_table_is_one_that_programs_are_searched_for():
    for entry in PRECISIONS.values():
        assert {entry.storage, entry.compute, entry.accumulate, entry.output} <= set(HLO_TYPES)


def test_a_coarser_format_is_allowed_a_larger_error():
    bound = {name: entry.max_error for name, entry in PRECISIONS.items()}
    assert bound["fp32"] < bound["bf16_3x"] < bound["tf32"] < bound["bf16"] < bound["fp8_e4m3"]
    # TF32's error, 3e-4, must not pass for fp32, nor bf16's, 3e-3, for TF32.
    assert bound["fp32"] < 3e-4 / 10
    assert bound["tf32"] < 3e-3


@pytest.mark.parametrize(
    ("error", "name"),
    [(3e-7, "fp32"), (3e-4, "tf32/fp16"), (2.9e-3, "bf16"), (4e-2, "8 bits or fewer")],
)
def test_the_error_tells_the_format_that_was_delivered(error, name):
    assert delivered(error) == name


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match=r"^unknown precision 'bf17': did you mean 'bf16'\?"):
        lookup("bf17")
