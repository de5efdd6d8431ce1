import pytest

from accel_bench import units


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.0, "1230"), (45.64, "45.6"), (0.07891, "0.0789"), (0.0, "0"), (999.6, "1000")],
)
def test_digits(value, text):
    assert units.digits(value) == text


def test_quantities_take_the_prefix_that_suits_them():
    assert units.quantity(460.2e9, "FLOP/s") == "460 GFLOP/s"
    assert units.quantity(41.23e9, "B/s") == "41.2 GB/s"
    assert units.quantity(12.0, "tokens/s") == "12.0 tokens/s"


def test_times():
    assert units.seconds(1.5) == "1.50 s"
    assert units.seconds(3.21e-6) == "3.21 us"
    assert units.seconds(8e-10) == "0.800 ns"


def test_percent():
    assert units.percent(0.631) == "63 %"
    assert units.percent(0.0052) == "0.52 %"
