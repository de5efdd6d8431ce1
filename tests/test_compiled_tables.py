import io

import pytest
from rich.console import Console
from test_record import make

from accel_bench import compiled_findings, derive, tables
from accel_bench.cli import exit_status


def compiled(seconds=(2e-3, 1e-3), status="ok", chips=1, name="tpu:v5e:1x1", **fields):
    platform, chip, topology = name.split(":")
    compiler_s, bound_s = seconds
    facts = {
        "memory": {"needed": 4 * 2**30, "usable": 16 * 2**30},
        "program": {"flops_vs_work": 1.25},
        "estimate": {"compiler_s": compiler_s, "exposed_s": 0.0, "bound_s": bound_s,
                     "compute_s": bound_s, "memory_s": 1e-4, "network_s": 0.0, "binds": "compute"},
    }  # fmt: skip
    target = {"kind": "compiled", "platform": platform, "chip": chip, "topology": topology,
              "device_kind": chip, "num_devices": chips, "num_chips": chips}  # fmt: skip
    facts |= fields.pop("facts", {})
    reason = None if status == "ok" else "needs more"
    return make(target=target, samples_s=[], status=status, reason=reason, facts=facts, **fields)


def printed(*records) -> str:
    console = Console(width=220, file=io.StringIO(), record=True)
    tables.print_run(records, console)
    return console.export_text()


def test_an_estimate_never_looks_like_a_measurement():
    text = printed(compiled())
    assert "matmul (compiled, not run: times are estimates, per device)" in text
    assert "measured" not in text
    assert "±" not in text
    row = next(line for line in text.splitlines() if "tpu:v5e:1x1" in line)
    for cell in ("4.00 of 16.0 GiB", "1.25x", "1.00 ms", "~2.00 ms", "2.00x", "compute", "ok"):
        assert cell in row
    assert derive.time(compiled()) is None
    assert derive.rate(compiled(), "flops") is None
    assert not derive.ceilings([compiled()])


def test_the_compilers_time_is_shown_before_a_bound():
    assert derive.estimate(compiled()) == derive.Estimate(2e-3, "estimate")
    assert derive.estimate(compiled(seconds=(None, 1e-3))) == derive.Estimate(1e-3, "bound")
    assert derive.estimate(compiled(seconds=(None, None))) is None
    assert derive.estimate(compiled(status="oom_compile")) is None
    assert derive.estimate(make()) is None


def test_what_no_work_hides_of_the_network_is_added_to_the_compilers_time():
    facts = {"estimate": {"compiler_s": 2e-3, "exposed_s": 5e-4, "bound_s": 1e-3}}
    assert derive.estimate(compiled(facts=facts)) == derive.Estimate(2.5e-3, "estimate")


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_figure_is_never_cut(width):
    long = compiled(params={"shape": "mlp_up=16384x12288x49152"}, name="gpu:h100_sxm:1024x8")
    console = Console(width=width, file=io.StringIO(), record=True)
    tables.print_run([long, compiled(params={"shape": "1024"})], console)
    text = console.export_text()
    for whole in ("4.00 of 16.0 GiB", "1.00 ms", "~2.00 ms", "1024"):
        assert whole in text


def test_side_by_side_each_time_has_the_mark_of_its_origin():
    gpu = compiled(seconds=(None, 5e-4), name="gpu:h100_sxm:1")
    text = printed(make(), compiled(), gpu)
    beside = text.split("one step; ~ the compiler's estimate, >= a bound")[1]
    row = next(line for line in beside.splitlines() if line.strip().startswith("64"))
    assert row.split() == ["64", "fp32", "1.50", "s", "~2.00", "ms", ">=", "500", "us"]
    assert "one step" not in printed(compiled(), gpu)  # nothing measured beside
    assert "one step" not in printed(make())


def test_what_crosses_the_links_is_said_by_axis():
    entries = [
        {"kind": "all-gather", "axes": ["fsdp"], "bytes": 2e9, "calls": 3, "wire_bytes": 1e9},
        {"kind": "all-reduce", "axes": ["fsdp", "model"], "bytes": 1e6, "calls": 1,
         "wire_bytes": 1e6},
        {"kind": "all-to-all", "axes": None, "bytes": None, "calls": None, "wire_bytes": None},
    ]  # fmt: skip
    (line,) = compiled_findings.of_workload([compiled(facts={"collectives": entries})])
    assert "over fsdp all-gather 2.00 GB in 3 calls; over fsdp+model all-reduce 1.00 MB" in line
    assert "over unknown axes all-to-all" in line


SEARCH = {"facts": {"searched": "tpu:v5e:4x4 over data:*"}}


def search(*statuses):
    sizes = zip(("1x1", "2x2", "4x4"), (1, 4, 16), statuses, strict=False)
    return [
        compiled(status=status, chips=chips, name=f"tpu:v5e:{shape}", **SEARCH)
        for shape, chips, status in sizes
    ]


def test_the_smallest_fit_is_named_with_the_size_below():
    (line,) = compiled_findings.of_workload(search("oom_compile", "ok", "ok"))
    assert line == (
        "Smallest v5e that fits 64 fp32: tpu:v5e:2x2, 4 chips, needs 4.00 of 16.0 GiB a device; "
        "tpu:v5e:1x1: needs 4.00 of 16.0 GiB a device."
    )
    (line,) = compiled_findings.of_workload(search("oom_compile", "oom_compile"))
    assert line == "64 fp32 fits no v5e up to tpu:v5e:2x2: needs 4.00 of 16.0 GiB a device."


@pytest.mark.parametrize(
    ("records", "strict", "status"),
    [
        (search("oom_compile", "ok"), False, 0),
        (search("oom_compile", "ok"), True, 0),
        (search("oom_compile", "oom_compile"), False, 1),
        ([compiled(status="oom_compile")], False, 1),
        (
            [*search("oom_compile", "ok"), compiled(status="oom_compile", precision="bf16")],
            False,
            1,
        ),
        ([compiled(status="unsupported")], False, 0),
        ([compiled(status="unsupported")], True, 1),
    ],
)
def test_a_size_too_small_is_no_failure_of_a_search_that_found_one(records, strict, status):
    assert exit_status(records, strict) == status
