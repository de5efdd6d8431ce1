import pytest
from test_compare import row, write
from test_compiled_tables import compiled
from test_derive import H100

from accel_bench import comparison
from accel_bench.comparison import Cell
from accel_bench.errors import RequestError


def cells(tmp_path, *runs, reference=None) -> list[Cell | None]:
    """The cells of the one row that these runs, of one record each, share."""
    paths = [write(tmp_path / str(n), [record]) for n, record in enumerate(runs)]
    (found,) = comparison.compare(paths, reference).rows
    return found.cells


def present(cell: Cell | None) -> Cell:
    assert cell is not None
    return cell


def test_a_ratio_is_to_the_reference(tmp_path):
    runs = (row(seconds=1.0), row(seconds=0.5), row(seconds=4.0))
    ratios = [present(cell).ratio for cell in cells(tmp_path, *runs)]
    assert ratios == [None, pytest.approx(2.0), pytest.approx(0.25)]


@pytest.mark.parametrize("name", ["B", "tpu:v6e:1x1"])
def test_the_reference_is_named_by_letter_or_target(tmp_path, name):
    runs = [compiled(seconds=(2.0, 1.0)), compiled(seconds=(1.0, 1.0), name="tpu:v6e:1x1")]
    ratios = [present(cell).ratio for cell in cells(tmp_path, *runs, reference=name)]
    assert ratios == [0.5, None]
    with pytest.raises(RequestError, match="unknown --reference 'Z'"):
        comparison.compare([tmp_path / "0", tmp_path / "1"], "Z")


def test_unlike_origins_have_no_ratio(tmp_path):
    runs = (row(), compiled(seconds=(0.1, 0.1)), compiled(seconds=(None, 0.1), name="gpu:l4:1"))
    found = [present(cell) for cell in cells(tmp_path, *runs)]
    assert [cell.origin for cell in found] == ["measured", "estimate", "bound"]
    assert [cell.ratio for cell in found] == [None, None, None]
    assert [cell.fastest for cell in found] == [False, False, False]


@pytest.mark.parametrize(
    ("seconds", "flags", "winner"),
    [
        ((1.0, 0.5, 0.9), (), 1),
        ((1.0, 0.5, 0.501), (), None),  # the intervals overlap
        ((1.0, 0.5, 0.9), ("noisy",), 2),  # what is noisy wins nothing
    ],
)
def test_the_fastest_is_marked_only_where_the_intervals_allow(tmp_path, seconds, flags, winner):
    runs = [row(seconds=s) for s in seconds]
    runs[1].facts["flags"] = list(flags)
    marked = [present(cell).fastest for cell in cells(tmp_path, *runs)]
    assert marked == [number == winner for number in range(3)]


def test_a_rate_is_shown_per_device_and_per_chip(tmp_path):
    seven = {**H100, "device_kind": "TPU7x", "chip": "tpu7x", "num_devices": 8, "num_chips": 4.0}
    first, _ = cells(tmp_path, row(target=seven, precision="bf16"), row(precision="bf16"))
    cell = present(first)
    assert cell.rate
    assert cell.per_device == cell.rate.value / 8
    assert cell.per_chip == cell.rate.value / 4
    assert cell.fraction
    assert cell.fraction.of.startswith("published")


def test_sources_are_lettered_beyond_z(tmp_path):
    paths = [write(tmp_path / str(number), [row()]) for number in range(28)]
    letters = [source.letter for source in comparison.read_all(paths)]
    assert letters[0] == "A"
    assert letters[25:] == ["Z", "AA", "AB"]


def test_a_run_of_several_targets_is_as_many_sources(tmp_path):
    records = [row(), compiled(), compiled(name="gpu:l4:1")]
    sources = comparison.read_all([write(tmp_path / "one", records)])
    assert [source.target for source in sources] == ["", "tpu:v5e:1x1", "gpu:l4:1"]
    assert sources[1].name == "B: compiled for tpu:v5e:1x1, not run"
