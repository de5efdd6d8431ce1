"""The command line from outside: exit status, the exact line, and what is written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused

from accel_bench import record

FAST = ("--config.measure.max_seconds=0.05", "--config.measure.target=0.5")
ONE_MATMUL = ("--config=smoke", "--config.cases={'it': {'workload': 'matmul', 'shape': '64'}}")


def rows(path: Path):
    found = record.read(path / record.FILE_NAME)
    assert found.problems == []
    return found.records


def cases(**sections) -> str:
    return f"--config.cases={sections}"


def test_smoke_runs_every_kind_and_resumes_to_nothing(main_py, tmp_path):
    done = main_py("run", "--config=configs/smoke.py", "--workdir=w")
    assert done.returncode == 0, done.stderr
    assert "10 ok" in done.stdout
    assert "measuring on the CPU" in done.stderr
    for noise in ("Traceback", "WARNING", "Warning"):
        assert noise not in done.stdout + done.stderr
    found = rows(tmp_path / "w")
    assert len(found) == 10
    for row in found:
        assert row.samples_s
        assert row.env["packages"]["jax"]
        assert row.target["platform"] == "cpu"
        assert row.facts["error"] <= row.facts["max_error"]

    again = main_py("run", "--resume", "--workdir=w")
    assert again.returncode == 0
    assert "nothing to do: all 10 cases have a record in w" in again.stderr
    assert rows(tmp_path / "w") == found


def test_a_run_is_repeated_from_the_config_that_it_left(main_py, tmp_path):
    run = ("run", "--config=smoke", cases(it={"workload": "matmul", "shape": ("64", "96")}), *FAST)
    assert main_py(*run, "--workdir=w").returncode == 0
    assert main_py("run", "--config=w/config.json", "--workdir=v").returncode == 0
    first, second = (rows(tmp_path / d) for d in "wv")
    assert {r.config_hash for r in second} == {first[0].config_hash}
    # Same inputs, same program, same result.
    assert [r.facts["error"] for r in first] == [r.facts["error"] for r in second]

    compared = main_py("compare", "w", "v")
    assert compared.returncode == 0
    assert "matmul (measured)" in compared.stdout
    assert "not compared" not in compared.stdout


SMOKE = ("run", "--config=smoke")
WRONG = [
    (("run", "--config=smok"), "unknown config 'smok': did you mean 'smoke'?"),
    ((*SMOKE, "--config.seeed=1"), "unknown config field 'seeed': did you mean 'seed'?"),
    ((*SMOKE, "--config.model.num_layer=1"), "did you mean 'num_layers'?"),
    ((*SMOKE, "--config.seed=x"), "--config.seed=x"),
    ((*SMOKE, "--config.measure.energy=maybe"), "energy"),
    ((*SMOKE, "--precision=bf17"), "unknown precision 'bf17': did you mean 'bf16'?"),
    ((*SMOKE, "--device=gpu"), "no GPU is attached: this machine has the CPU"),
    ((*SMOKE, "--device=xpu"), "--device=xpu"),
    ((*SMOKE, "--mesh=data:3"), "needs 3 devices, but there is 1"),
    ((*SMOKE, "--mesh=data:4", "--fake_devices=2"), "but there are 2"),
    (
        ("run", *ONE_MATMUL, "--mesh=data:3", "--fake_devices=3"),
        "m=64 is not divisible by mesh axis data=3",
    ),
    ((*SMOKE, "--workdir=/dev/null/x"), "cannot write to --workdir=/dev/null/x"),
    ((*SMOKE, "--baselines=nunpy"), "did you mean 'numpy'?"),
    ((*SMOKE, "--timeout_s=0"), "--timeout_s=0.0: a number of seconds above 0"),
    ((*SMOKE, "--fake_devices=0"), "--fake_devices=0"),
    (("run", "--resume"), "--resume needs --workdir=DIR"),
    (("run", "--resume", "--workdir=nowhere"), "there is no config.json in --workdir=nowhere"),
    (("rum",), "unknown command 'rum': did you mean 'run'?"),
    (("run", "--no_such_flag"), "Unknown command line flag 'no_such_flag'"),
    (("list", "chip"), "unknown list 'chip': did you mean 'chips'?"),
    (("list", "models", "--markdown=x.md"), "--markdown is for list chips, not for other lists"),
    (("list", "chips", "--markdown=/dev/null/x"), "cannot write /dev/null/x"),
    (("list", "chips", "h100_smx"), "unknown chip 'h100_smx': did you mean 'h100_sxm'?"),
    (("list", "configs", "smoke"), "list configs takes no more words"),
    (("compare", "a"), "cannot read records from a"),
    (("compare", "a", "a/../a"), "a/../a is given twice: a run is not compared with itself"),
    (("compare", "a", "b", "--published"), "--published is for plan, not for compare"),
    (("compare", "a", "b", "--config.seed=1"), "--config is for run, not for compare"),
    (("summary", "a", "--claims"), "--claims is for compare, not for summary: leave it out"),
    (("list", "chips", "--html=x"), "--html is for compare, not for list: leave it out"),
    ((*SMOKE, "--compile_cache=/dev/null/x"), "--compile_cache=/dev/null/x: /dev/null is no"),
    ((*SMOKE, "--tokens=1e9"), "--tokens is for plan, not for run: leave it out"),
    ((*SMOKE, "--deterministic=5"), "flag --deterministic=5: Non-boolean argument to boolean flag"),
    (("compare",), "compare needs at least two workdirs, or one with several targets"),
    (("compare", "a", "b"), "cannot read records from a"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_request_is_one_line_and_nothing_is_written(
    quick_main_py, tmp_path, arguments, message
):
    assert_refused(quick_main_py(*arguments), message, tmp_path)


def test_a_workdir_with_records_is_not_written_to_unasked(main_py, tmp_path):
    assert main_py("run", *ONE_MATMUL, *FAST, "--workdir=w").returncode == 0
    before = (tmp_path / "w" / record.FILE_NAME).read_bytes()
    for extra, message in (
        ((), "holds 1 record already: add --resume"),
        (("--config.seed=1",), "holds 1 record of another experiment (seed: 0 against 1)"),
        (("--config.seed=1", "--resume"), "of another experiment (seed: 0 against 1)"),
    ):
        done = main_py("run", *ONE_MATMUL, *FAST, "--workdir=w", *extra)
        assert done.returncode == 2
        assert message in done.stderr
    assert (tmp_path / "w" / record.FILE_NAME).read_bytes() == before


def test_a_case_that_cannot_fit_costs_its_own_row_only(main_py, tmp_path):
    huge = cases(it={"workload": "matmul", "shape": ("64", "185364", "96")})
    done = main_py("run", "--config=smoke", huge, *FAST, "--workdir=w")
    assert done.returncode == 1
    found = {row.params["shape"]: row for row in rows(tmp_path / "w")}
    assert [row.status for row in found.values()] == ["ok", "oom", "ok"]
    assert "GiB are free" in (found["185364"].reason or "")
    assert found["185364"].samples_s == []


@pytest.mark.alone
def test_a_case_that_hangs_is_ended_and_the_next_one_runs(main_py, tmp_path):
    slow = cases(it={"workload": "matmul", "shape": ("64", "12000", "96")})
    started = time.monotonic()
    done = main_py("run", "--config=smoke", slow, *FAST, "--workdir=w", "--timeout_s=3")
    assert done.returncode == 1
    assert [row.status for row in rows(tmp_path / "w")] == ["ok", "timeout", "ok"]
    reason = rows(tmp_path / "w")[1].reason or ""
    assert "after --timeout_s=3 seconds" in reason
    assert time.monotonic() - started < 60


def start(tmp_path, *arguments):
    environ = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "run", *arguments],
        cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_rows(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    file = path / record.FILE_NAME
    while time.monotonic() < deadline:
        if file.exists() and file.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    pytest.fail(f"no {count} rows in time")


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


LONG = cases(it={"workload": "matmul", "shape": ("64", "3000", "96")})
STAYING = ("--config.measure.max_seconds=1.5", "--config.measure.target=1e-6",
           "--config.measure.max_samples=100000")  # fmt: skip


def test_a_worker_that_is_killed_costs_its_row_only(tmp_path):
    parent = start(tmp_path, "--config=smoke", LONG, "--workdir=w", *STAYING)
    wait_for_rows(tmp_path / "w", 1)
    time.sleep(1)
    (worker,) = children(parent.pid)
    os.kill(worker, signal.SIGKILL)
    parent.communicate(timeout=120)
    assert parent.returncode == 1
    found = rows(tmp_path / "w")
    assert [row.status for row in found] == ["ok", "crashed", "ok"]
    assert "signal SIGKILL" in (found[1].reason or "")


def test_a_run_that_is_killed_is_carried_on(main_py, tmp_path):
    parent = start(tmp_path, "--config=smoke", LONG, "--workdir=w", *STAYING)
    wait_for_rows(tmp_path / "w", 1)
    (worker,) = children(parent.pid)
    parent.kill()
    parent.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()  # no orphan keeps the device
    file = tmp_path / "w" / record.FILE_NAME
    first = rows(tmp_path / "w")
    file.write_bytes(file.read_bytes() + b'{"run_id": "torn')
    done = main_py("run", "--resume", "--workdir=w")
    assert done.returncode == 0, done.stderr
    assert "the last line is torn" in done.stderr
    found = rows(tmp_path / "w")
    assert found[: len(first)] == first
    assert [row.params["shape"] for row in found] == ["64", "3000", "96"]


def test_a_resumed_run_stays_on_its_mesh_and_its_machine(main_py, tmp_path):
    run = ("run", "--config=smoke", cases(it={"workload": "matmul", "shape": ("64", "96")}), *FAST)
    assert main_py(*run, "--workdir=w").returncode == 0
    done = main_py("run", "--resume", "--workdir=w", "--fake_devices=2", "--mesh=data:2")
    assert done.returncode == 2
    assert "holds records of another mesh ({} against {'data': 2})" in done.stderr
    file = tmp_path / "w" / record.FILE_NAME
    first = json.loads(file.read_text().splitlines()[0])
    first["target"]["device_kind"] = "Some other CPU"
    file.write_text(json.dumps(first) + "\n")
    done = main_py("run", "--resume", "--workdir=w")
    assert done.returncode == 2
    assert "holds records of device_kind Some other CPU, and this is" in done.stderr
    assert len(rows(tmp_path / "w")) == 1


def test_what_went_wrong_is_run_again_on_request_only(main_py, tmp_path):
    run = ("run", "--config=smoke", cases(it={"workload": "matmul", "shape": ("64", "96")}), *FAST)
    assert main_py(*run, "--workdir=w").returncode == 0
    file = tmp_path / "w" / record.FILE_NAME
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0] |= {"status": "timeout", "reason": "still timing", "samples_s": []}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = main_py("run", "--resume", "--workdir=w")
    assert (done.returncode, len(rows(tmp_path / "w"))) == (1, 2)
    done = main_py("run", "--resume", "--retry", "--workdir=w")
    assert done.returncode == 0
    assert "1 case to run, 1 already there" in done.stderr
    assert "2 ok" in done.stdout


@pytest.mark.parametrize("command", ["list", "list chips"])
def test_output_that_nobody_reads_to_its_end_is_no_failure(command):
    words = f"{sys.executable} {ROOT / 'main.py'} {command} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_a_full_output_is_said_in_one_line():
    words = f"{sys.executable} {ROOT / 'main.py'} list chips > /dev/full"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "main.py: cannot write the output: No space left on device\n"


def test_a_terminal_that_cannot_show_a_sign_and_closed_streams_are_survived(main_py, tmp_path):
    done = main_py("run", *ONE_MATMUL, *FAST, "--workdir=w", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    words = " ".join(
        [
            sys.executable,
            str(ROOT / "main.py"),
            "run",
            "--resume",
            f"--workdir={tmp_path}/w",
            "2>&-",
        ]
    )
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.returncode == 0
    assert "1 ok" in done.stdout


def test_two_runs_do_not_write_to_one_workdir(main_py, tmp_path):
    parent = start(tmp_path, "--config=smoke", LONG, "--workdir=w", *STAYING)
    try:
        wait_for_rows(tmp_path / "w", 1)
        done = main_py("run", "--resume", "--workdir=w")
        assert done.returncode == 2
        assert "another run is writing to --workdir=w" in done.stderr
    finally:
        parent.kill()
        parent.communicate()


def test_virtual_devices_and_a_mesh(main_py, tmp_path):
    done = main_py(
        "run", *ONE_MATMUL, *FAST, "--fake_devices=4", "--mesh=data:2,model:2", "--workdir=w"
    )
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "w")
    assert row.mesh == {"data": 2, "model": 2}
    assert (row.target["num_devices"], row.target["num_chips"]) == (4, None)


def test_unsupported_rows_are_rows_and_strict_counts_them(main_py, tmp_path):
    arguments = ("run", *ONE_MATMUL, *FAST, "--precision=fp32,tf32")
    assert main_py(*arguments, "--workdir=w").returncode == 0
    assert [row.status for row in rows(tmp_path / "w")] == ["ok", "unsupported"]
    assert main_py(*arguments, "--workdir=v", "--strict").returncode == 1


def test_baselines_are_rows_on_the_cpu_with_their_threads(main_py, tmp_path):
    done = main_py(
        "run", *ONE_MATMUL, *FAST, "--baselines=numpy,numpy_1thread,cupy", "--precision=fp32,bf16",
        "--workdir=w",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {(row.implementation, row.precision): row for row in rows(tmp_path / "w")}
    assert found["numpy", "fp32"].status == "ok"
    assert found["numpy", "bf16"].status == "unsupported"
    assert found["cupy", "fp32"].status == "unsupported"
    threads = found["numpy_1thread", "fp32"].env["settings"]["OPENBLAS_NUM_THREADS"]
    assert threads == "1"


def test_a_profile_without_device_events_keeps_the_host_time(main_py, tmp_path):
    done = main_py("run", *ONE_MATMUL, *FAST, "--profile", "--workdir=w")
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "w")
    assert row.facts["device_trace"]["reason"] == "no device events"
    assert row.samples_s
    assert "no device events" in done.stdout


def test_an_unknown_xla_flag_is_a_row_and_no_dead_run(main_py, tmp_path):
    done = main_py("run", *ONE_MATMUL, *FAST, "--workdir=w", XLA_FLAGS="--xla_no_such_flag=1")
    assert done.returncode == 1
    (row,) = rows(tmp_path / "w")
    assert row.status == "crashed"
    assert "xla_no_such_flag" in (row.reason or "")


def test_a_full_disk_is_said_in_one_line(tmp_path):
    script = (
        f"import resource, runpy, sys; sys.path.insert(0, {str(ROOT)!r});"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000));"
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    many = cases(it={"workload": "matmul", "shape": tuple(str(64 + i) for i in range(8))})
    arguments = [str(ROOT / "main.py"), "run", "--config=smoke", many, *FAST, "--workdir=w"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "a record could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert rows(tmp_path / "w")


def test_the_list_of_chips_names_its_sources(main_py):
    done = main_py("list", "chips")
    assert done.returncode == 0
    assert "h100_sxm" in done.stdout
    assert "datasheet" in done.stdout
    assert "h100_sxm" not in main_py("list", "chips", "v5e").stdout


def test_the_parent_starts_no_back_end_and_imports_no_jax(tmp_path):
    script = (
        "import sys; sys.argv = ['main.py']\n"
        "from accel_bench import config_files, plan, runner, api, compare, listing\n"
        "plan.make_plan(config_files.load('default'))\n"
        "assert 'jax' not in sys.modules and 'flax' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_flax_is_imported_only_where_a_model_is_run():
    script = (
        "import sys, jax\n"
        "from accel_bench import execute\n"
        "from accel_bench.workloads import WORKLOADS\n"
        "for name in ('matmul', 'memory', 'dispatch', 'transfer'): WORKLOADS[name].builder()\n"
        "assert 'flax' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_the_users_own_modules_are_not_taken_for_ours(main_py, tmp_path):
    for name in ("models.py", "configs.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    attention = {"workload": "attention", "model": "tiny", "batch": 1, "length": 16}
    done = main_py("run", "--config=smoke", cases(it=attention), *FAST, "--workdir=w")
    assert done.returncode == 0, done.stderr


def test_records_are_one_json_object_a_line(main_py, tmp_path):
    main_py("run", *ONE_MATMUL, *FAST, "--workdir=w")
    for line in (tmp_path / "w" / record.FILE_NAME).read_text().splitlines():
        assert json.loads(line, parse_constant=pytest.fail)["schema_version"] == 1
