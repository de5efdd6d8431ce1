"""Several processes that run a case together: here, as a cluster, and over a limited link."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT

from accel_bench import netns
from accel_bench.cluster import Cluster, find
from accel_bench.config import base
from accel_bench.errors import RequestError
from accel_bench.follower import follow
from accel_bench.lead import Lead
from accel_bench.supervisor import StartError

MATMUL = """
from accel_bench.config import base

def get_config():
    config = base("group")
    config.measure.max_seconds = {seconds}
    config.measure.target = 1e-9
    config.measure.max_samples = 100000
    config.cases = {cases}
    return config
"""
TRAIN = {
    "workload": "model", "phase": "train_step", "model": "tiny", "batch": 4, "length": 16,
}  # fmt: skip
needs_network = pytest.mark.skipif(
    netns.unavailable() is not None, reason=netns.unavailable() or "it is there"
)


def write(folder, cases: dict, seconds: float = 0.2) -> str:
    path = folder / "group_config.py"
    path.write_text(MATMUL.format(cases=repr(cases), seconds=seconds))
    return f"--config={path}"


def records(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(tmp_path, *arguments: str):
    """`python main.py run ...` in its own session; what is left of it is killed."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "run", "--device=cpu", *arguments],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition, seconds: float = 60.0):
    """Waits until something is true, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come to pass")


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def namespaces() -> set[str]:
    """Network namespaces of this suite, other runs' among them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines() if "accel_bench" in line}


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    return [
        int(child)
        for task in os.listdir(f"/proc/{pid}/task")
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    ]


def test_one_command_starts_processes_here_and_each_case_is_all_of_theirs(main_py, tmp_path):
    config = write(tmp_path, {"step": TRAIN, "product": {"workload": "matmul", "shape": "256"}})
    done = main_py(
        "run", config, "--device=cpu", "--num_processes=2", "--fake_devices=2",
        "--mesh=data:2,model:2", "--profile", "--workdir=run",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = records(tmp_path / "run")
    assert [r["status"] for r in found] == ["ok", "ok"]
    for record in found:
        assert record["mesh"] == {"data": 2, "model": 2}
        assert (record["target"]["processes"], record["target"]["num_devices"]) == (2, 4)
        assert "device_trace" in record["facts"]
        # They share this machine's cores, and each one's environment is there.
        assert record["target"]["virtual"] is True
        assert [p["host"] for p in record["env"]["processes"]] == [socket.gethostname()] * 2
    step = next(r for r in found if r["workload"] == "model")
    assert step["facts"]["error"] < 1e-5 and step["facts"]["fell"][1] < step["facts"]["fell"][0]


def test_a_cluster_outlives_none_of_its_processes_without_a_word(tmp_path):
    """Process 1's worker dies: one row; then process 1 itself: the rest; none of it hangs."""
    shapes = ("64", "128", "192")
    config = write(tmp_path, {"m": {"workload": "matmul", "shape": shapes}}, seconds=60)
    here = f"--coordinator=localhost:{free_port()}"
    both = [config, here, "--num_processes=2", "--timeout_s=50"]
    with (
        started(tmp_path, *both, "--process_id=0", "--workdir=lead") as lead,
        started(tmp_path, *both, "--process_id=1", "--workdir=other") as other,
    ):
        log = tmp_path / "lead" / "worker.log"
        is_up = "peer ranks"  # gloo has met; processes write into each other's lines
        wait_for(lambda: log.exists() and is_up in log.read_text(errors="replace"))
        os.kill(wait_for(lambda: children(other.pid))[0], signal.SIGKILL)
        lines = tmp_path / "lead" / "records.jsonl"
        wait_for(lambda: lines.exists() and lines.read_text().count("\n") == 1)
        os.kill(other.pid, signal.SIGKILL)
        _, errors = lead.communicate(timeout=60)
    assert lead.returncode == 1
    found = records(tmp_path / "lead")
    assert [r["status"] for r in found] == ["crashed"] * 3, errors
    assert re.match(
        r"the worker of process 1 on \S+ ended while .*: signal SIGKILL", found[0]["reason"]
    )
    assert "process" in found[1]["reason"] and "gone" in found[1]["reason"]
    assert "of 2 processes 1 is gone" in found[2]["reason"]
    assert not (tmp_path / "other").exists()  # the first one alone writes


@pytest.mark.alone
def test_a_process_that_does_not_come_ends_each_case_in_a_timeout(main_py, tmp_path):
    config = write(tmp_path, {"m": {"workload": "matmul", "shape": ("64", "128")}})
    where = f"--coordinator=localhost:{free_port()}"
    begun = time.monotonic()
    done = main_py(
        "run", config, where, "--num_processes=2", "--process_id=0", "--device=cpu",
        "--timeout_s=1", "--workdir=run",
    )  # fmt: skip
    assert time.monotonic() - begun < 20
    assert done.returncode == 1
    for record in records(tmp_path / "run"):
        assert record["status"] == "timeout"
        assert record["reason"].startswith("of 2 processes 1 did not come to localhost:")


def lead_of(count: int) -> tuple[Lead, Cluster]:
    cluster = Cluster("127.0.0.1", free_port(), count, 0)
    return Lead(cluster, "this"), cluster


def member(cluster: Cluster, number: int, count: int | None = None) -> Cluster:
    return Cluster(cluster.host, cluster.port, count or cluster.num_processes, number)


def test_who_does_not_belong_is_told_why():
    lead, cluster = lead_of(3)
    served = threading.Thread(target=follow, args=(member(cluster, 1), "this", 5.0))
    served.start()
    try:
        wait_for(lambda: 1 in lead._peers)
        with pytest.raises(RequestError, match="--process_id=1 is taken by a process on"):
            follow(member(cluster, 1), "this", 5.0)
        with pytest.raises(RequestError, match="start all with the same config, flags"):
            follow(member(cluster, 2), "that", 5.0)
        with pytest.raises(RequestError, match="--num_processes=3, this one with 4"):
            follow(member(cluster, 2, count=4), "this", 5.0)
        with pytest.raises(StartError, match="of 3 processes 2 did not come to 127") as late:
            lead.wait(0.1)
        assert late.value.status == "timeout"
        refused = "2 came and was refused: process 0 was asked for something else|with 4: start"
        assert re.search(refused, str(late.value))
        with pytest.raises(RequestError, match="Address already in use; choose a free port"):
            Lead(cluster, "this")
        nowhere = Cluster("nowhere.invalid", 9901, 2, 0)
        with pytest.raises(RequestError, match="listen at --coordinator=nowhere.invalid:9901: "):
            Lead(nowhere, "this")
    finally:
        lead.close()
        served.join(10)
    assert not served.is_alive()  # the end of the run is the end of those that follow


def test_what_is_not_there_or_not_this_suite_is_named():
    nowhere = Cluster("127.0.0.1", free_port(), 2, 1)
    with pytest.raises(RequestError, match=r"was not reached within 1 s \(Connection refused\)"):
        follow(nowhere, "this", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        stranger = Cluster("127.0.0.1", other.getsockname()[1], 2, 1)
        with pytest.raises(RequestError, match="what listens there is not this suite"):
            follow(stranger, "this", 1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"process_id": 1}, "--process_id=1 needs --coordinator=HOST:PORT"),
        ({"coordinator": "node1"}, "--coordinator=node1 is no address: write HOST:PORT"),
        ({"coordinator": "node1:0", "num_processes": 2}, "is no address"),
        ({"coordinator": "node1:9901"}, "--coordinator=node1:9901 needs --num_processes too"),
        ({"coordinator": "node1:9901", "num_processes": 2}, "needs --process_id too"),
        (
            {"coordinator": "node1:9901", "num_processes": 2, "process_id": 2},
            "--process_id=2 with --num_processes=2: choose from 0 to 1",
        ),
    ],
)
def test_flags_that_make_no_cluster_are_refused(fields, message):
    config = base("c")
    config.update(fields)
    with pytest.raises(RequestError, match=re.escape(message)):
        find(config)


def test_what_a_launcher_says_is_taken_as_jax_takes_it(monkeypatch):
    slurm = {
        "SLURM_JOB_ID": "4097", "SLURM_STEP_NODELIST": "node[003-010]", "SLURM_NTASKS": "16",
        "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_NODES": "8",
    }  # fmt: skip
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert find(base("c")) == Cluster("node003", 65535 - 4096 + 1 + 1, 16, 3, (1,))
    alone = base("c")
    alone.num_processes = 1  # a job's shell is no part of a run
    assert find(alone) is None
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert find(base("c")) is None


@pytest.mark.alone
@needs_network
def test_a_link_carries_what_it_should_and_no_more(main_py, tmp_path):
    reduce = {
        "workload": "collective", "op": "all_reduce", "bytes": 4 << 20, "processes": 2,
        "link": "100mbit",
    }  # fmt: skip
    config = write(tmp_path, {"reduce": reduce}, seconds=1.0)
    done = main_py("run", config, "--device=cpu", "--workdir=run")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records(tmp_path / "run")
    assert record["mesh"] == {"data": 2} and record["params"]["link"] == "100mbit"
    rate = record["facts"]["work"]["bus_bytes"] / sorted(record["samples_s"])[0]
    assert 0.7 * 12.5e6 < rate < 12.5e6


@needs_network
def test_what_a_killed_run_leaves_is_cleared_by_the_next(tmp_path):
    before = namespaces()
    step = {**TRAIN, "exchange": "fp32", "processes": 2, "link": "1gbit"}
    config = write(tmp_path, {"step": step}, seconds=60)
    with started(tmp_path, config, "--workdir=run") as run:
        log = tmp_path / "run" / "worker.log"
        is_up = "peer ranks"
        wait_for(lambda: log.exists() and is_up in log.read_text(errors="replace"))
        workers = children(run.pid)
        assert len(workers) == 2
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        # The workers go with their parent; what it built stays until someone looks.
        wait_for(lambda: not any(runs(pid) for pid in workers))
        assert netns.clear_leftovers() >= 1
    assert namespaces() <= before


@needs_network
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_takes_its_network_away(how, tmp_path):
    before = namespaces()
    step = {**TRAIN, "exchange": "fp32", "processes": 2, "link": "1gbit"}
    config = write(tmp_path, {"step": step}, seconds=60)
    with started(tmp_path, config, "--workdir=run") as run:
        log = tmp_path / "run" / "worker.log"
        wait_for(lambda: log.exists() and log.read_text(errors="replace"))
        os.killpg(run.pid, how)
        assert run.wait(30) == 130
    assert namespaces() <= before


def test_without_the_means_for_a_network_rows_are_unsupported(main_py, tmp_path):
    step = {**TRAIN, "exchange": "int8", "processes": 2, "link": "1gbit"}
    config = write(tmp_path, {"step": step})
    done = main_py("run", config, "--device=cpu", "--workdir=run", PATH="/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records(tmp_path / "run")
    assert record["status"] == "unsupported"
    assert record["reason"].startswith("no limited network here: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"link": "1gbit"}, "link='1gbit' needs processes: 2 or more that it joins"),
        ({"processes": 2, "link": "fast"}, "link 'fast' is no rate: write unlimited, or a rate"),
        ({"processes": 0}, "processes must be a whole number of at least 1"),
        ({"processes": 65}, "processes=65 are too many for one machine: at most 64"),
        ({"processes": 2, "link": 100}, "link=100 must be a text, such as 100mbit"),
        ({"mesh": 4}, "mesh=4 must be a text, such as data:4"),
        ({"mesh": "data:each,model:each"}, "only one axis can go through each size"),
        ({"processes": 2, "mesh": "data:2"}, "processes are one device each along 'data'"),
        ({"processes": 3}, "batch=4 does not divide over mesh axis 'data'"),
        ({"mesh": "fsdp:2", "exchange": "int8"}, "an exchange needs mesh axis 'data'"),
        ({"mesh": "rows:2"}, "model knows no mesh axis 'rows'"),
        ({"accumulate": 2}, "model accumulate and local_steps need an exchange, as fp32"),
        ({"exchange": "zip"}, "unknown model exchange 'zip'"),
        ({"exchange": "int8", "phase": "forward"}, "is for phase train_step, not forward"),
        ({"exchange": "int8", "local_steps": 2}, "compresses gradients, but with local_steps=2"),
    ],
)
def test_places_and_exchanges_that_cannot_be_are_refused(change, message, quick_main_py, tmp_path):
    folder = tmp_path / "empty"
    config = write(tmp_path, {"step": {**TRAIN, **change}})
    done = quick_main_py("run", config, "--device=cpu", f"--workdir={folder}")
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--isolation=none"], "starts processes of its own: it needs --isolation=process"),
        (["--num_processes=2"], "starts processes of its own: leave --num_processes out"),
        (
            ["--mesh=data:2", "--fake_devices=2"],
            "--mesh=data:2 divides nothing: every case of this",
        ),
        (["--num_processes=65"], "--num_processes=65 are too many for one machine"),
    ],
)
def test_flags_that_mean_nothing_to_such_a_case_are_refused(
    flags, message, quick_main_py, tmp_path
):
    folder = tmp_path / "empty"
    config = write(tmp_path, {"step": {**TRAIN, "exchange": "fp32", "processes": 2}})
    done = quick_main_py("run", config, "--device=cpu", *flags, f"--workdir={folder}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not folder.exists()


def test_a_field_may_stand_before_the_config_that_has_it(main_py, tmp_path):
    config = write(tmp_path, {"m": {"workload": "matmul", "shape": "64"}})
    done = main_py("run", "--config.seed=3", config, "--device=cpu", "--workdir=/dev/null/x")
    assert done.stderr.startswith("main.py: cannot write to --workdir=/dev/null/x")


def test_a_mesh_of_too_many_devices_is_skipped_and_counted_nowhere(main_py, tmp_path):
    case = {**TRAIN, "mesh": ("data:2", "data:4")}
    config = write(tmp_path, {"step": case})
    done = main_py("run", config, "--device=cpu", "--fake_devices=2", "--workdir=run")
    assert done.returncode == 0, done.stdout + done.stderr
    small, large = records(tmp_path / "run")
    assert small["status"] == "ok" and small["target"]["num_devices"] == 2
    assert large["reason"] == "needs 4 devices, there are 2"
    assert large["target"]["num_devices"] == 1
    assert "x 4" not in done.stdout
