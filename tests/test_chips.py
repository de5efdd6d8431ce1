import dataclasses
import io
import math
import re

import pytest
from rich.console import Console
from test_record import make

from accel_bench import chip_listing, chips, comparison, listing, target
from accel_bench.chips import CHIPS, Chip
from accel_bench.errors import RequestError
from accel_bench.execute import measured_target
from accel_bench.precision import PRECISIONS
from accel_bench.report import chips as report_chips

UNITS = {entry.unit for entry in PRECISIONS.values()}


@pytest.mark.parametrize("name", CHIPS)
def test_every_figure_is_plausible_and_has_a_source(name):
    chip = CHIPS[name]
    assert set(chip.peaks) <= UNITS
    assert all(0 < peak < 10_000 for peak in chip.peaks.values())
    assert 5 < chip.memory_gb < 1000
    assert 100 < chip.bandwidth_gbs < 20_000
    letters = re.findall(r"\b[A-Z]\b", chip.source)
    assert letters
    assert set(letters) <= set(chips.SOURCES)


@pytest.mark.parametrize("name", CHIPS)
def test_every_link_has_a_name_and_a_number(name):
    chip = CHIPS[name]
    assert chip.link_gbs and chip.link_name and chip.links
    assert chip.links == (2 * len(chip.largest) if chip.platform == "tpu" else 1)
    assert "link" in chip.source or "slot" in chip.source
    assert (chip.link_name == "ICI") == (chip.platform == "tpu")
    assert not (chip.nic_gbs and chip.dcn_gbs)


# One clock of a TPU's matrix unit, of a GPU's fp32 unit: as published, to the vendors' rounding.
@pytest.mark.parametrize("name", CHIPS)
def test_peaks_are_units_times_clock(name):
    chip = CHIPS[name]
    assert chip.cores and chip.clock_ghz
    if chip.platform == "tpu":
        assert chip.matrix_units and chip.matrix_size
        products = chip.matrix_units * chip.matrix_size**2 * chip.matrix_passes
        assert products * 2 * chip.clock_ghz / 1e3 == pytest.approx(chip.peaks["bf16"], rel=0.005)
    else:
        assert chip.fp32_units
        fp32 = chip.fp32_units * 2 * chip.clock_ghz / 1e3
        assert fp32 == pytest.approx(chip.peaks["fp32"], rel=0.01)


@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if c.platform == "gpu"])
def test_matrix_units_do_a_power_of_two_of_products_a_cycle(name):
    chip = CHIPS[name]
    if not chip.matrix_units:
        assert "fp16" not in chip.peaks
        return
    assert chip.clock_ghz
    each = chip.peaks["fp16"] * 1e3 / chip.matrix_units / chip.clock_ghz
    # Where it is less than a power of two, the matrix units run at a lower clock than the others.
    assert 0.92 < each / 2 ** round(math.log2(each)) < 1.02


@pytest.mark.parametrize(
    ("name", "cores", "fp32_units", "matrix_units"),
    [("p40", 30, 3840, 0), ("v100_sxm2", 80, 5120, 640), ("t4", 40, 2560, 320),
     ("a100_80", 108, 6912, 432), ("rtx3080", 68, 8704, 272), ("rtx3090", 82, 10496, 328),
     ("h100_sxm", 132, 16896, 528), ("h100_pcie", 114, 14592, 456), ("l4", 58, 7424, 232)],
)  # fmt: skip
def test_units_are_those_that_nvidia_sells(name, cores, fp32_units, matrix_units):
    chip = CHIPS[name]
    assert (chip.cores, chip.fp32_units, chip.matrix_units) == (cores, fp32_units, matrix_units)


def test_links_and_power_are_plausible():
    for chip in CHIPS.values():
        assert chip.link_gbs and 10 < chip.link_gbs < chip.bandwidth_gbs
        assert chip.watts is None or 50 < chip.watts < 1500
        assert chip.watts or chip.platform == "tpu"


def printed(width, shown=CHIPS):
    console = Console(width=width, record=True, file=io.StringIO())
    chip_listing.print_chips(shown, console)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_cuts_and_folds_no_figure(width):
    lines = printed(width).splitlines()
    assert max(map(len, lines)) <= width
    for part in chip_listing.PARTS[:-1]:
        for cells in chip_listing.rows(part, CHIPS):
            said = rf"\s*{r' +'.join(map(re.escape, cells))}\s*"
            assert any(re.fullmatch(said, line) for line in lines), cells


def test_the_list_says_what_the_table_says_and_where_it_was_read():
    shown = " ".join(printed(200, {n: CHIPS[n] for n in ("l4", "v6e", "h100_sxm")}).split())
    for text in ("PCIe slot 31.5", "ICI 4 x 90", "NVLink 450", "slot P", "link B", "12.5", "HBM3",
                 "2 of 256x256", "Hopper", "16896", "Ada Lovelace", "tpu:v6e:16x16",
                 "the vendor's datasheet"):  # fmt: skip
        assert text in shown
    assert "a100" not in shown


def test_what_is_not_known_is_a_dash_and_no_number_is_printed_that_is_not_in_the_table():
    bare = Chip("gpu", ("new",), {"fp16": 7.0}, memory_gb=8, bandwidth_gbs=900, source="D")
    cells = [c for part in chip_listing.PARTS for c in next(chip_listing.rows(part, {"n": bare}))]
    said = [cell for cell in cells if cell not in ("n", "-")]
    assert said == ["7", "8", "900", "1", "D"]
    assert Chip("tpu", (), {}, 1, 1, "").matrix_units is None


NEW = Chip(
    "gpu", ("NVIDIA Z9",), {"fp32": 51.2, "bf16": 1000.0}, memory_gb=123, bandwidth_gbs=4567,
    source="D", architecture="Zeta", cores=100, clock_ghz=2.0, capability="9.0", watts=801,
    link_name="NVLink", link_gbs=432, links=1,
)  # fmt: skip


def test_a_chip_is_added_in_one_place(monkeypatch, tmp_path, capsys):
    with pytest.raises(RequestError, match="unknown gpu"):
        target.parse("gpu:z9:8")
    monkeypatch.setitem(CHIPS, "z9", NEW)
    assert chips.find_chip("NVIDIA Z9") == "z9"
    assert target.parse("gpu:z9:2x8").num_chips == 16
    with pytest.raises(RequestError, match="write 1 to 8"):
        target.parse("gpu:z9:9")
    listing.show_chips(markdown=tmp_path / "chips.md")
    for text in (capsys.readouterr().out, (tmp_path / "chips.md").read_text()):
        for figure in ("Zeta", "12800", "4567", "NVLink 432", "801"):
            assert figure in text
    report = report_chips.html(comparison.pair([
        comparison.Source(letter, tmp_path, "", [make(target=measured)], [], None)
        for letter, measured in (("A", measured_target("gpu", "NVIDIA Z9", 1, 1)),
                                 ("B", measured_target("cpu", "some CPU", 1, 1)))
    ]))  # fmt: skip
    compared, every = report.split("<details>")
    assert "12800" in compared and "4567" in compared and "h100_sxm" not in compared
    assert "h100_sxm" in every and "12800" in every
    monkeypatch.setitem(CHIPS, "z9", dataclasses.replace(NEW, capability=None))
    with pytest.raises(RequestError, match="z9 is in the chip table, but nothing here compiles"):
        target.parse("gpu:z9:8")


def test_markdown_has_every_chip_in_every_table():
    text = chip_listing.markdown_text(CHIPS)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    names = [line.split(" | ")[0][2:].replace("\\", "") for line in lines]
    assert names == ["chip", *CHIPS] * len(chip_listing.PARTS)
    # As many cells as titles.
    bars = [re.sub(r"\\\|", "", line).count("|") for line in text.splitlines() if "|" in line]
    sizes = [len(part.columns) + 2 for part in chip_listing.PARTS for _ in range(len(CHIPS) + 2)]
    assert bars == sizes


def test_a_narrower_unit_is_never_slower():
    for chip in CHIPS.values():
        order = [chip.peaks[u] for u in ("fp32", "tf32", "fp16", "fp8") if u in chip.peaks]
        assert order == sorted(order)


def test_the_match_is_exact():
    assert chips.find_chip("NVIDIA H100 80GB HBM3") == "h100_sxm"
    assert chips.find_chip("NVIDIA H100 PCIe") == "h100_pcie"
    assert chips.find_chip("TPU v5 lite") == "v5e"
    # The H100 with 96 GB is another chip: no peak is better than a neighbour's.
    assert chips.find_chip("NVIDIA H100 96GB HBM3") is None
    assert chips.find_chip("cpu") is None


def test_device_kinds_name_one_chip_each():
    kinds = [kind.lower() for chip in CHIPS.values() for kind in chip.device_kinds]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize("name", ["p40", "v100_sxm2", "t4"])
def test_chips_without_a_bf16_unit_have_no_bf16_peak(name):
    assert chips.peak_flops(CHIPS[name], "bf16") is None
    assert not chips.has_unit(CHIPS[name], "bf16")


def test_peaks_of_precisions_that_share_a_unit():
    v5e, h100, v100 = CHIPS["v5e"], CHIPS["h100_sxm"], CHIPS["v100_sxm2"]
    assert chips.peak_flops(v5e, "fp32_default") == (197e12, "bf16")
    assert chips.peak_flops(v5e, "fp32") is None
    assert chips.peak_flops(h100, "fp32_default") == (494.5e12, "tf32")
    assert chips.peak_flops(v100, "fp32_default") == (15.7e12, "fp32")
    assert chips.peak_flops(h100, "bf16_3x") == (989e12 / 3, "bf16")
    assert not chips.has_unit(h100, "bf16_3x")


@pytest.mark.parametrize(
    ("kind", "devices", "num_chips"),
    [("TPU v3", 8, 4.0), ("TPU v3", 1, 0.5), ("TPU v4", 4, 4.0), ("TPU v5 lite", 4, 4.0),
     ("TPU7x", 8, 4.0), ("NVIDIA A100-SXM4-80GB", 8, 8.0), ("something new", 8, None)],
)  # fmt: skip
def test_chips_and_devices_are_counted_apart(kind, devices, num_chips):
    target = measured_target("tpu", kind, devices, devices)
    assert target["num_chips"] == num_chips
    assert target["num_devices"] == devices


def test_an_unknown_chip_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match="did you mean 'h100_sxm'"):
        chips.lookup("h100_smx")
