import re

import pytest

from accel_bench import chips, listing
from accel_bench.chips import CHIPS
from accel_bench.errors import RequestError
from accel_bench.execute import measured_target
from accel_bench.precision import PRECISIONS

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


def test_the_list_names_the_links_and_where_they_were_read(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    listing.show_chips(["l4", "v5e", "h100_sxm"])
    shown = capsys.readouterr().out
    for text in ("PCIe slot 31.5", "ICI 4 x 45", "NVLink 450", "slot P", "link B", "3.125"):
        assert text in shown


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
