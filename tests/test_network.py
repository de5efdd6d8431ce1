import dataclasses

import pytest

from accel_bench import network
from accel_bench.chips import CHIPS
from accel_bench.network import Span

GB = 1e9


def entry(kind, size, parties, axes=("fsdp",)):
    factor = {"all-reduce": 2 * (parties - 1) / parties, "collective-permute": 1.0}
    sent = size * factor.get(kind, (parties - 1) / parties)
    return {"kind": kind, "axes": list(axes), "bytes": size, "wire_bytes": sent}


def busy(entries, spans, chip):
    return network.busy(entries, spans, CHIPS[chip])


def test_without_collectives_the_links_are_idle():
    assert busy([], {}, "v5e").seconds == 0.0


def test_a_ring_on_one_torus_dimension_uses_its_two_links():
    found = busy([entry("all-gather", 4 * GB, 4)], {("fsdp",): Span({0: 2}, 4)}, "v5e")
    assert found.seconds == pytest.approx(3 / (2 * 45))  # 3/4 of 4 GB over two links of 45 GB/s
    assert found.by_axes == {"fsdp": found.seconds}


def test_a_line_has_one_link_where_a_ring_has_two():
    found = busy([entry("all-gather", 4 * GB, 4)], {("fsdp",): Span({0: 1}, 4)}, "v5e")
    assert found.seconds == pytest.approx(3 / 45)


def test_more_dimensions_share_the_work():
    one = busy([entry("all-gather", GB, 64)], {("fsdp",): Span({0: 2}, 64)}, "v5p")
    three = busy([entry("all-gather", GB, 64)], {("fsdp",): Span({0: 2, 1: 2, 2: 2}, 64)}, "v5p")
    assert one.seconds and three.seconds
    assert one.seconds == pytest.approx(3 * three.seconds)


def test_axes_on_other_dimensions_run_at_the_same_time():
    spans = {("fsdp",): Span({0: 2}, 4), ("model",): Span({1: 2}, 4)}
    both = [entry("all-gather", GB, 4), entry("all-gather", GB, 4, axes=("model",))]
    alone = busy(both[:1], spans, "v5e").seconds
    assert alone
    assert busy(both, spans, "v5e").seconds == alone
    same = {axes: Span({0: 2}, 4) for axes in spans}
    assert busy(both, same, "v5e").seconds == 2 * alone


def test_the_cores_of_one_chip_need_no_link():
    assert busy([entry("all-reduce", GB, 2)], {("fsdp",): Span({}, 2)}, "tpu7x").seconds == 0.0


def test_gpus_of_one_host_use_nvlink():
    found = busy([entry("all-reduce", 8 * GB, 8)], {("fsdp",): Span({}, 8)}, "h100_sxm")
    assert found.links == {"NVLink": pytest.approx(14 / 450)}


def test_between_hosts_the_gpus_of_a_host_share_what_comes_in():
    found = busy([entry("all-gather", 16 * GB, 16)], {("fsdp",): Span({}, 16, hosts=2)}, "h100_sxm")
    assert found.links["network card"] == pytest.approx(8 / 8 / 50)
    assert found.links["NVLink"] == pytest.approx(14 / 450)
    assert found.seconds == pytest.approx(14 / 450)
    apart = busy([entry("all-gather", 16 * GB, 2)], {("fsdp",): Span({}, 2, hosts=2)}, "h100_sxm")
    assert apart.links == {"network card": pytest.approx(8 / 50)}


@pytest.mark.parametrize("name", CHIPS)
def test_an_all_reduce_takes_what_the_link_of_each_chip_allows(name):
    chip = CHIPS[name]
    assert chip.link_gbs and chip.link_name
    ring = Span({0: 2} if chip.platform == "tpu" else {}, 4)
    found = busy([entry("all-reduce", GB, 4)], {("fsdp",): ring}, name)
    link = "torus dimension 0" if chip.platform == "tpu" else chip.link_name
    links = 2 if chip.platform == "tpu" else 1
    assert found.links == {link: pytest.approx(1.5 / (links * chip.link_gbs))}


def test_between_hosts_of_pcie_cards_the_network_card_must_be_known():
    spans, work = {("fsdp",): Span({}, 8, hosts=2)}, [entry("all-reduce", 4 * GB, 8)]
    assert "no network card" in (busy(work, spans, "h100_pcie").reason or "")
    with_card = dataclasses.replace(CHIPS["h100_pcie"], nic_gbs=25)
    found = network.busy(work, spans, with_card)
    assert found.links == {
        "PCIe slot": pytest.approx(6 / 63),  # 2 x 3/4 of 4 GB among the four of a host
        "network card": pytest.approx(4 / 4 / 25),  # 2 x 1/2 of 4 GB, shared by the four
    }


def test_between_slices_the_chips_of_a_slice_share_what_comes_in():
    two = {("fsdp",): Span({0: 2}, 32, slices=2)}
    found = busy([entry("all-reduce", 16 * GB, 32)], two, "v5e")
    assert found.links == {
        "torus dimension 0": pytest.approx(30 / (2 * 45)),  # 2 x 15/16 of 16 GB in a slice
        "data center network": pytest.approx(16 / 16 / 3.125),  # 2 x 1/2 of 16 GB among 16 chips
    }
    assert found.seconds == found.links["torus dimension 0"]
    exchanged = busy([entry("all-to-all", GB, 32)], two, "v5e")
    assert exchanged.links["data center network"] == pytest.approx(0.5 / 3.125)
    shifted = busy([entry("collective-permute", GB, 32)], two, "v5e")
    assert shifted.links["data center network"] == pytest.approx(1 / 16 / 3.125)
    apart = {("fsdp",): Span({}, 2, slices=2)}
    assert busy([entry("all-gather", 2 * GB, 2)], apart, "v5e").links == {
        "data center network": pytest.approx(1 / 3.125)
    }


def test_the_cores_of_a_chip_share_its_part_of_the_network_between_slices():
    found = busy([entry("all-reduce", GB, 4)], {("fsdp",): Span({}, 4, slices=2)}, "tpu7x")
    assert found.links == {"data center network": pytest.approx(1 / 12.5)}


NO_LINK = dataclasses.replace(CHIPS["l4"], link_name=None, link_gbs=None, links=None)
NO_ICI = dataclasses.replace(CHIPS["v5e"], link_gbs=None, links=None)


@pytest.mark.parametrize(
    ("chip", "span", "said"),
    [
        (NO_ICI, Span({0: 2}, 4), "no link bandwidth"),
        (CHIPS["v4"], Span({0: 2}, 4, slices=2), "between slices"),
        (NO_LINK, Span({}, 4), "no link bandwidth"),
        (CHIPS["l4"], Span({}, 4, hosts=4), "no network card"),
    ],
)
def test_what_the_chip_table_does_not_know_is_null_with_a_reason(chip, span, said):
    found = network.busy([entry("all-gather", GB, 4)], {("fsdp",): span}, chip)
    assert found.seconds is None
    assert said in (found.reason or "")


def test_a_collective_whose_devices_are_not_known_is_null_with_its_reason():
    unknown = {"kind": "all-gather", "axes": None, "bytes": 1, "wire_bytes": 1, "reason": "why"}
    assert busy([unknown], {}, "v5e").reason == "why"
    unread = entry("all-gather", GB, 4) | {"wire_bytes": None}
    assert busy([unread], {("fsdp",): Span({0: 2}, 4)}, "v5e").reason
