"""Collectives give what they must, count as nccl-tests do, and claim no bandwidth they had not."""

import io

import jax
import numpy as np
import pytest
from conftest import assert_refused
from rich.console import Console
from test_compile import GPU, TPU, needs_gpu, needs_tpu, session
from test_record import make

from accel_bench import bus_bandwidth, checks, derive, findings, record, tables
from accel_bench import compile as compiling
from accel_bench.cases import Case, expand
from accel_bench.chips import CHIPS
from accel_bench.config import base
from accel_bench.errors import RequestError
from accel_bench.execute import measured_target
from accel_bench.hlo import analysis
from accel_bench.measure import Measurement
from accel_bench.program import holds
from accel_bench.workloads import WORKLOADS, collective
from accel_bench.workloads.base import SkippedCase, make_mesh
from accel_bench.workloads.params import COLLECTIVES, Collective

KIB = 1 << 10
MESHES = [
    ({"data": 8}, "data"),
    ({"data": 4, "model": 2}, "data"),
    ({"data": 4, "model": 2}, "model"),
]
ON_EVERY_AXIS = pytest.mark.parametrize(("axes", "axis"), MESHES, ids=str)
EVERY_OP = pytest.mark.parametrize("op", COLLECTIVES)


def build(op, axes, axis="each", size=12 * KIB):
    mesh = make_mesh(jax.devices(), axes)
    return WORKLOADS["collective"].builder()(Collective(op, size, axis), "fp32", mesh)


def by_place(array, axes, axis) -> np.ndarray:
    """Rows: other axes of the mesh; columns: ranks along the axis; then each one's elements."""
    grid = np.asarray(array).reshape(*axes.values(), -1)
    grid = np.moveaxis(grid, list(axes).index(axis), -2)
    return grid.reshape(-1, *grid.shape[-2:])


def by_definition(op, x) -> np.ndarray:
    """What each rank ends with, from what all began with: groups x ranks x elements."""
    groups, ranks, _ = x.shape
    pieces = x.reshape(groups, ranks, ranks, -1)
    total = np.repeat(x.sum(axis=1, keepdims=True), ranks, axis=1)
    return {
        "all_reduce": total,
        "all_gather": np.repeat(x.reshape(groups, 1, -1), ranks, axis=1),
        "reduce_scatter": x.sum(axis=1).reshape(groups, ranks, -1),
        "all_to_all": pieces.swapaxes(1, 2).reshape(x.shape),
        "ppermute": np.roll(x, 1, axis=1),
    }[op]


@EVERY_OP
@ON_EVERY_AXIS
@pytest.mark.parametrize("size", [12 * KIB, 64 * KIB])
def test_every_rank_ends_with_what_the_definition_says(op, axes, axis, size):
    workload = build(op, axes, axis, size)
    arguments, known = workload.init(0)
    assert arguments[0].ndim == (2 if size == 64 * KIB else 1)  # whole tiles, or not
    begun = by_place(arguments[0], axes, axis)
    rows = begun.reshape(-1, begun.shape[-1])
    assert len(np.unique(rows, axis=0)) == 8  # no two devices hold the same
    out = jax.jit(workload.fn)(*arguments)
    np.testing.assert_array_equal(by_place(out, axes, axis), by_definition(op, begun))
    assert workload.error
    assert workload.error(known, out) == 0
    assert workload.facts["exchange"]["groups"] == 8 // axes[axis]


@EVERY_OP
def test_a_wrong_result_is_found_on_whatever_device_it_lies(op):
    workload = build(op, {"data": 4, "model": 2}, "model")
    arguments, known = workload.init(0)
    out = jax.jit(workload.fn)(*arguments)
    assert workload.error
    right = np.asarray(out)
    for place in (0, right.size // 2 + 5, right.size - 1):
        wrong = right.copy()
        wrong[place] += 1
        error = workload.error(known, jax.device_put(wrong, out.sharding))
        assert error == pytest.approx(1 / right.size)
        assert error > workload.max_error
    swapped = np.roll(right.reshape(8, -1), 1, axis=0).ravel()
    found = workload.error(known, jax.device_put(swapped, out.sharding))
    assert found is not None
    # After an all_reduce along `model` every other device has the same as its neighbour.
    assert found > 0.4


@EVERY_OP
@ON_EVERY_AXIS
def test_the_program_is_that_collective_alone_and_sends_the_bus_bytes(op, axes, axis):
    workload = build(op, axes, axis)
    jitted = jax.jit(workload.fn, donate_argnums=workload.donate, keep_unused=True)
    text = jitted.lower(*workload.inputs).compile().as_text() or ""
    assert holds(text, workload.holds)
    (sent,) = analysis.analyse(text, axes)["collectives"]
    assert (sent["axes"], sent["calls"]) == ([axis], 1)
    assert sent["bytes"] == workload.work["bytes"]
    assert sent["wire_bytes"] == workload.work["bus_bytes"]
    assert "input_output_alias={ {}: (1," in text  # into the result of the call before


def test_a_program_without_the_collective_does_not_pass():
    workload = build("all_gather", {"data": 8})
    text = jax.jit(lambda x: x + 1).lower(workload.inputs[0]).compile().as_text() or ""
    assert text
    assert not holds(text + ' metadata={op_name="all_gather"}', workload.holds)


def test_the_next_call_reads_the_same_and_writes_into_the_last_result():
    workload = build("ppermute", {"data": 8})
    arguments, _ = workload.init(0)
    assert workload.feed(arguments, "out") == (arguments[0], "out")
    assert workload.block_each  # queued collectives of one process dead-lock on a CPU


@pytest.mark.parametrize(
    ("op", "factors"),
    [
        ("all_reduce", {2: 1.0, 4: 1.5, 8: 1.75}),
        *((op, {2: 0.5, 4: 0.75, 8: 0.875}) for op in COLLECTIVES[1:4]),
        ("ppermute", {2: 1.0, 4: 1.0, 8: 1.0}),
    ],
)
def test_factors_are_those_of_nccl_tests(op, factors):
    assert {n: bus_bandwidth.FACTORS[op](n) for n in factors} == factors


@pytest.mark.parametrize(
    ("op", "begins", "ends"),
    [
        ("all_reduce", 1, 1), ("all_gather", 1 / 8, 1), ("reduce_scatter", 1, 1 / 8),
        ("all_to_all", 1, 1), ("ppermute", 1, 1),
    ],
)  # fmt: skip
def test_bytes_are_the_buffer_that_nccl_tests_count(op, begins, ends):
    """1000 bytes are 250 numbers, of which 248 divide over 8 ranks."""
    workload = build(op, {"data": 8}, size=1000)
    assert workload.facts["exchange"]["elements"] == 248
    assert workload.work["bytes"] == 992
    assert [array.size / 8 for array in workload.inputs] == [248 * begins, 248 * ends]


def cases_of(axes, **section):
    config = base("test")
    config.cases = {"it": {"workload": "collective", "op": "all_reduce", "bytes": KIB} | section}
    return expand(config, "cpu", axes)


def test_each_is_every_axis_with_someone_to_talk_to():
    found = cases_of({"data": 4, "fsdp": 1, "model": 2}, bytes=(KIB, 2 * KIB))
    assert [(c.params["axis"], c.params["bytes"]) for c in found] == [
        ("data", KIB), ("data", 2 * KIB), ("model", KIB), ("model", 2 * KIB)
    ]  # fmt: skip
    assert found[0].label == "collective all_reduce data 1 KiB"
    assert [c.params["axis"] for c in cases_of({}, axis="each")] == ["each"]
    assert [c.params["axis"] for c in cases_of({"data": 8}, axis=("each", "data"))] == ["data"]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"axis": "modle"}, "the mesh has no axis 'modle': its axes are data, model"),
        ({"axis": 3}, "collective axis must be a name, got 3"),
        ({"op": "all_reduse"}, "did you mean 'all_reduce'"),
        ({"bytes": 12}, "bytes=12 is too little for mesh axis data=4: at least 16, a number for"),
        ({"bytes": 0}, "must be a whole number of at least 1"),
    ],
)
def test_what_cannot_work_is_refused(section, message):
    with pytest.raises(RequestError, match=message):
        cases_of({"data": 4, "model": 2}, **section)


def test_an_axis_that_the_mesh_lacks_is_a_wrong_request(main_py, tmp_path):
    message = (
        "config.cases.all_gather: collective all_gather: the mesh has no axis 'model': its axes "
        "are data"
    )
    done = main_py(
        "run", "--config=configs/collectives.py", "--device=cpu", "--fake_devices=2",
        "--mesh=data:2", "--config.cases.all_gather.axis=model",
    )  # fmt: skip
    assert_refused(done, message, tmp_path)


@pytest.mark.parametrize("axes", [{}, {"data": 1}])
def test_one_device_has_no_one_to_talk_to(axes):
    mesh = make_mesh(jax.devices()[:1], axes)
    with pytest.raises(SkippedCase, match="one device has no one to talk to"):
        collective.build(Collective("all_reduce", KIB), "fp32", mesh)


def test_one_device_is_a_skipped_row_without_a_rate(main_py, tmp_path):
    sizes = [f"--config.cases.{op}.bytes.cpu=({KIB},)" for op in COLLECTIVES]
    done = main_py(
        "run", "--config=configs/collectives.py", "--device=cpu", f"--workdir={tmp_path}", *sizes
    )
    assert done.returncode == 0, done.stderr
    rows = record.read(tmp_path / record.FILE_NAME).records
    assert [row.params["op"] for row in rows] == sorted(COLLECTIVES)
    for row in rows:
        assert row.status == "skipped"
        assert "one device has no one to talk to" in (row.reason or "")
        assert derive.headline(row) is None
        assert derive.rate(row, "bus_bytes") is None
    assert "B/s" not in done.stdout


@pytest.mark.parametrize(
    ("op", "buffers"), [("all_reduce", 16), ("all_gather", 9), ("reduce_scatter", 9)]
)
def test_buffers_of_all_virtual_devices_must_fit_the_one_memory(op, buffers, monkeypatch):
    gib = 1 << 30
    monkeypatch.setattr(collective.measure, "available_device_bytes", lambda d: buffers * gib)
    build(op, {"data": 8}, size=gib)
    monkeypatch.setattr(collective.measure, "available_device_bytes", lambda d: buffers * gib - 1)
    with pytest.raises(SkippedCase) as error:
        build(op, {"data": 8}, size=gib)
    assert str(error.value) == f"needs {buffers}.00 GiB, {buffers}.00 GiB are free"


CPU8 = {
    "kind": "measured", "platform": "cpu", "device_kind": "Some CPU", "num_devices": 8,
    "virtual": True,
}  # fmt: skip


def row(size, seconds, op="all_reduce", target=CPU8, flags=(), **fields):
    factor = bus_bandwidth.FACTORS[op](8)
    exchange = {"axis": "data", "ranks": 8, "groups": 1, "elements": size // 4, "factor": factor}
    return make(
        workload="collective", params={"op": op, "axis": "data", "bytes": size}, target=target,
        samples_s=[seconds] * 10, mesh={"data": 8},
        facts={
            "work": {"bytes": size, "bus_bytes": size * factor}, "exchange": exchange,
            "mode": "queued", "flags": list(flags),
        } | fields.pop("facts", {}),
        **fields,
    )  # fmt: skip


def times(latency, bandwidth, sizes, op="all_reduce", **fields):
    factor = bus_bandwidth.FACTORS[op](8)
    return [row(size, latency + size * factor / bandwidth, op, **fields) for size in sizes]


SIZES = [KIB * 4**step for step in range(9)]


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
@pytest.mark.parametrize(("latency", "bandwidth"), [(35e-6, 2.1e9), (9e-6, 4e11), (1.0, 1e6)])
def test_the_fit_finds_the_latency_and_bandwidth_that_times_were_made_of(op, latency, bandwidth):
    (found,) = derive.latency_and_bandwidth(times(latency, bandwidth, SIZES, op)).values()
    assert found.line.latency_s == pytest.approx(latency, rel=1e-6)
    assert found.line.bus_bandwidth == pytest.approx(bandwidth, rel=1e-6)
    assert found.line.within < 1e-6
    assert found.line.sizes == 9


def test_the_fit_says_how_far_off_the_worst_size_is():
    rows = times(35e-6, 2.1e9, SIZES)
    rows[4] = row(SIZES[4], 1.3 * rows[4].samples_s[0])
    (found,) = derive.latency_and_bandwidth(rows).values()
    assert 0.1 < found.line.within < 0.3
    assert found.line.latency_s == pytest.approx(35e-6, rel=0.2)


@pytest.mark.parametrize(
    ("sizes", "fitted"),
    [
        ([KIB, 1000 * KIB], False),
        ([KIB, 10 * KIB, 99 * KIB], False),
        ([KIB, 10 * KIB, 100 * KIB], True),
        ([KIB, KIB, 100 * KIB, 100 * KIB], False),
    ],
)
def test_few_or_near_sizes_tell_no_latency_from_bandwidth(sizes, fitted):
    assert bool(derive.latency_and_bandwidth(times(1e-5, 1e9, sizes))) is fitted


def test_larger_sizes_that_take_no_longer_tell_no_bandwidth():
    assert bus_bandwidth.fit([1e3, 1e4, 1e6], [3.0, 2.0, 1.0]) is None


def test_rows_that_failed_or_are_uncertain_take_no_part_and_launches_do():
    good = times(35e-6, 2.1e9, SIZES[:3], flags=["dispatch-bound"]) + times(35e-6, 2.1e9, SIZES[6:])
    bad = [
        row(64 << 20, 9.0, status="invalid", reason="wrong"),
        row(64 << 20, 9.0, flags=["nonlinear"]),
        row(64 << 20, 9.0),
    ]
    bad[-1].samples_s = [1.0, 9.0] * 5  # its median may be anything
    (found,) = derive.latency_and_bandwidth(good + bad).values()
    assert found.line.latency_s == pytest.approx(35e-6, rel=1e-6)
    assert found.with_launch
    assert not derive.latency_and_bandwidth(good[3:] + bad)


def test_machines_operations_and_meshes_are_fitted_apart():
    rows = times(1e-5, 1e9, SIZES) + times(2e-5, 1e9, SIZES, "ppermute")
    rows += times(3e-5, 1e9, SIZES, target=CPU8 | {"device_kind": "Other CPU"})
    rows += [make(**{**vars(r), "mesh": {"model": 2, "data": 8}}) for r in times(4e-5, 1e9, SIZES)]
    found = derive.latency_and_bandwidth(rows)
    assert [round(one.line.latency_s * 1e5) for one in found.values()] == [1, 2, 3, 4]


def said(rows):
    return list(findings.of_workload("collective", rows, {}))


def test_the_line_in_words():
    rows = times(35e-6, 2.1e9, SIZES)
    assert said(rows)[0].startswith(
        "all_reduce over data (8): 35.0 us + bytes at 2.10 GB/s bus bandwidth, within "
    )
    assert said(rows)[0].endswith(" % from 1 KiB to 64 MiB.")
    waited = times(35e-6, 2.1e9, SIZES, facts={"mode": "blocking"})
    assert "35.0 us, the program's launch included, + bytes" in said(waited)[0]
    assert said(rows[:2]) == []


def test_tables_name_both_bandwidths_and_no_other_rate():
    console = Console(width=200, file=io.StringIO(), record=True)
    tables.print_run([row(8_000_000, 1e-3), row(KIB, 1.0, status="invalid", reason="x")], console)
    text = console.export_text()
    (line,) = [line for line in text.splitlines() if "algorithm bandwidth" in line]
    assert line.index("algorithm bandwidth") < line.index("bus bandwidth")
    assert " rate " not in line
    (line,) = [line for line in text.splitlines() if "8.00 GB/s" in line]
    assert line.index("8.00 GB/s") < line.index("14.0 GB/s")
    assert text.count("GB/s") == 2


def checked(op, target, size, step_s, **exchange):
    factor = bus_bandwidth.FACTORS[op](8)
    result = Measurement(
        samples_s=[step_s] * 20,
        facts={
            "work": {"bytes": size, "bus_bytes": size * factor}, "launch_queued_s": 1e-9,
            "exchange": {"ranks": 8, "groups": 1, "factor": factor, "processes": 1, "slices": 1}
            | exchange,
        },
    )  # fmt: skip
    checks.check(Case("c", "collective", {"op": op, "bytes": size}, "fp32"), target, result)
    return result


A100 = measured_target("gpu", "NVIDIA A100-SXM4-80GB", 8, 8)
H100 = measured_target("gpu", "NVIDIA H100 80GB HBM3", 8, 8)
V5E = measured_target("tpu", "TPU v5 lite", 8, 8)
UNKNOWN = measured_target("gpu", "NVIDIA H100 96GB HBM3", 8, 8)
CPU = measured_target("cpu", "Some CPU", 8, 8)


@pytest.mark.parametrize(
    ("op", "target", "limit_gbs"),
    [
        ("all_gather", A100, 300),
        ("all_reduce", A100, 300),
        ("all_gather", H100, 450),
        ("all_reduce", H100, 450 * 1.75),  # the switch adds: each rank sends S only once
        ("all_to_all", V5E, 4 * 45),
    ],
)
def test_bus_bandwidth_above_what_the_links_carry_is_no_result(op, target, limit_gbs):
    size = 1 << 30
    fastest = size * bus_bandwidth.FACTORS[op](8) / (limit_gbs * 1e9)
    checked(op, target, size, 1.01 * fastest)
    with pytest.raises(checks.Untrue, match="GB/s of bus bandwidth is above what the"):
        checked(op, target, size, 0.99 * fastest)


def test_links_that_are_not_known_have_no_limit_and_no_guess():
    checked("all_gather", UNKNOWN, 1 << 30, 1e-6)
    checked("all_gather", V5E, 1 << 30, 1e-6, slices=2)
    # Over several hosts the network card carries as much again as it can.
    assert bus_bandwidth.link_limit(CHIPS["a100_80"], "all_gather", {"processes": 2})[0] == 325e9


def test_what_virtual_devices_exchange_goes_through_one_memory(monkeypatch):
    monkeypatch.setattr(checks.detect, "cpu_cores", lambda: 2)
    limit = checks.bytes_limit(CPU, {})[0]
    assert limit
    fastest = 8 * (1 << 30) / limit
    checked("ppermute", CPU, 1 << 30, 1.01 * fastest)
    with pytest.raises(checks.Untrue, match="for each of 8 devices"):
        checked("ppermute", CPU, 1 << 30, 0.99 * fastest)


def test_the_share_of_the_peak_is_of_the_links():
    rows = [row(1 << 30, 5e-3, "all_gather", target=A100 | {"kind": "measured"})]
    share = derive.fraction_of_peak(rows[0], {})
    assert share
    assert share.value == pytest.approx((1 << 30) * 0.875 / 5e-3 / 300e9)
    assert share.of == "what the links carry"
    assert derive.fraction_of_peak(row(1 << 30, 1.0), {}) is None


ABSENT = [
    *(pytest.param(TPU, op, 4 * 45e9, marks=needs_tpu) for op in COLLECTIVES),
    *(pytest.param(GPU, op, 450e9, marks=needs_gpu) for op in COLLECTIVES),
]


@pytest.mark.parametrize(("target", "op", "links"), ABSENT)
def test_absent_accelerators_need_at_least_the_bus_bytes_over_their_links(target, op, links):
    case = Case("c", "collective", {"op": op, "bytes": 1 << 20}, "fp32")
    # A buffer of whole tiles: no compiler makes more of the operation than was asked for.
    found = compiling.execute(session(target, ("data", 4)), case)
    assert (found.status, found.reason) == ("ok", None)
    facts = found.measurement.facts
    (sent,) = facts["collectives"]
    assert sent["kind"] == collective.HLO[op][0]
    assert sent["wire_bytes"] == facts["work"]["bus_bytes"]
    assert facts["estimate"]["network_s"] >= facts["work"]["bus_bytes"] / links
    assert facts["estimate"]["binds"] == "network"
