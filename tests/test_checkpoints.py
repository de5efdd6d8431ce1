"""A training that was stopped goes on as if it had not been, from what can be trusted."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT
from jax.sharding import NamedSharding, PartitionSpec
from test_training import TEXT, setup, trained, undisturbed

from accel_bench import checkpoints, measure, record
from accel_bench.checkpoints import Checkpoints, bit_sums
from accel_bench.course import Course
from accel_bench.workloads.base import make_mesh

HERE = {"mesh": {}, "device_kind": "Some CPU", "processes": 1}
# What orbax leaves behind of a read that failed is no defect of ours.
TORN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def toy(value: float, devices: int = 1, size: int = 16):
    mesh = make_mesh(jax.devices()[:devices], {"data": devices})
    by_row = NamedSharding(mesh, PartitionSpec("data"))
    return {"w": jax.device_put(jnp.full((size, 4), value), by_row), "n": jax.device_put(
        jnp.int32(value), NamedSharding(mesh, PartitionSpec()))}  # fmt: skip


def abstract(state):
    def of(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)

    return jax.tree.map(of, state)


def course(step: int) -> Course:
    return Course(dict(HERE), step)


def write(folder, *steps, about=None):
    kept = Checkpoints(folder, about or {"seed": 0}, print)
    for step in steps:
        kept.save(toy(step), course(step))
    kept.close()
    assert kept.problems == []


def find(folder, state=None, about=None, last=100):
    said: list[str] = []
    kept = Checkpoints(folder, about or {"seed": 0}, said.append)
    found = kept.latest(abstract(state or toy(0)), HERE, last)
    assert said == kept.problems
    return found, said


def truncate(folder):
    for file in (folder / "state" / "d").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def exchange(folder):
    shutil.copytree(folder.with_name("10") / "state", folder / "state", dirs_exist_ok=True)


def tear_the_course(folder):
    file = folder / "about" / "metadata"
    file.write_text(file.read_text()[:50])


def alter_the_course(folder):
    """A file that reads as well as before."""
    file = folder / "about" / "metadata"
    plain = json.loads(file.read_text())
    plain["course"]["elapsed_s"] = -5.0
    file.write_text(json.dumps(plain))


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "junk").write_text("junk")


def rename(folder):
    folder.rename(folder.with_name("99"))


def test_the_last_few_are_kept_and_the_newest_is_taken(tmp_path):
    write(tmp_path, 5, 10, 15, 20)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["10", "15", "20"]
    found, problems = find(tmp_path)
    assert found is not None
    state, at = found
    assert (at.step, problems) == (20, [])
    assert at.resumed == [{"step": 20, **HERE}]
    np.testing.assert_array_equal(state["w"], np.full((16, 4), 20.0))


@TORN
@pytest.mark.parametrize(
    ("damage", "name", "why"),
    [
        (truncate, "15", "it cannot be read: "),
        (exchange, "15", "its arrays are not those that were written"),
        (tear_the_course, "15", "it cannot be read: "),
        (alter_the_course, "15", "its course is not the one that was written"),
        (empty, "15", "it cannot be read: "),
        (rename, "99", "it is of step 15"),
    ],
)
def test_a_checkpoint_that_is_damaged_is_named_and_the_one_before_it_taken(
    damage, name, why, tmp_path
):
    write(tmp_path, 10, 15)
    damage(tmp_path / "15")
    found, (problem,) = find(tmp_path)
    assert problem.startswith(f"checkpoint {name}: {why}")
    assert found is not None
    assert found[1].step == 10
    assert (tmp_path / f"{name}.unusable").is_dir()
    # It is out of the way of what is written next.
    write(tmp_path, 15)
    found, _ = find(tmp_path)
    assert found is not None
    assert found[1].step == 15


@TORN
@pytest.mark.parametrize(
    ("state", "about", "why"),
    [
        (toy(0, size=8), None, "it cannot be read: "),
        ({"v": toy(0)["w"]}, None, "it cannot be read: "),
        (None, {"seed": 1}, "it is of another training (seed: 0 against 1)"),
    ],
    ids=["shape", "tree", "training"],
)
def test_a_foreign_checkpoint_is_named_and_without_another_it_is_begun_anew(
    state, about, why, tmp_path
):
    write(tmp_path, 10)
    found, problems = find(tmp_path, state, about)
    assert found is None
    assert problems[0].startswith(f"checkpoint 10: {why}")
    assert problems[1] == "no checkpoint can be used: training starts from the beginning"


def test_one_that_is_being_written_when_all_ends_is_no_checkpoint(tmp_path):
    write(tmp_path, 10)
    (tmp_path / "15.orbax-checkpoint-tmp-1").mkdir()
    found, problems = find(tmp_path)
    assert found is not None
    assert problems == []
    write(tmp_path, 15)
    assert not list(tmp_path.glob("*tmp*"))


def test_a_disk_that_is_full_does_not_end_the_training(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path, {}, print)

    def fail(self, *args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.ocp.CheckpointManager, "save", fail)
    kept.save(toy(5), course(5))
    kept.close()
    (problem,) = kept.problems
    assert problem.startswith("a checkpoint of step 5 or before could not be written: ")
    assert "No space left" in problem


def test_sums_over_bits_are_the_same_on_any_mesh_and_see_every_bit():
    sums = bit_sums(toy(1.5))
    assert sums == bit_sums(toy(1.5, devices=8))
    assert sums != bit_sums(toy(np.nextafter(np.float32(1.5), np.float32(2))))


def test_elsewhere_one_is_taken_that_leaves_steps_to_time(tmp_path):
    write(tmp_path, 10, 15)
    found, (problem,) = find(tmp_path, last=14)
    assert "checkpoint 15: it is of another place, and too few steps are left" in problem
    assert found is not None
    assert found[1].step == 10


class Stop(Exception):
    pass


def stop_after(monkeypatch, step):
    real = Checkpoints.save

    def save(self, state, at):
        real(self, state, at)
        if at.step == step:
            raise Stop

    monkeypatch.setattr(Checkpoints, "save", save)


def test_a_training_goes_on_over_other_devices(tmp_path, monkeypatch):
    """Eight devices, then four: to rounding what one device would have learnt."""
    with monkeypatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(Stop):
            trained(TEXT, {"data": 2, "fsdp": 2, "model": 2}, tmp_path)
    result, stages = trained(TEXT, {"data": 4}, tmp_path)
    assert "carrying on at step 10" in stages
    (before,) = result.facts["resumed"]
    assert (before["step"], before["mesh"]) == (10, {"data": 2, "fsdp": 2, "model": 2})
    assert len(result.samples_s) == 9  # of these devices alone, without the first
    curve, alone = result.facts["curve"], undisturbed().facts["curve"]
    assert curve["step"] == alone["step"]
    for name in ("loss", "test_loss"):
        np.testing.assert_allclose(curve[name], alone[name], rtol=1e-3)


def test_each_seed_is_a_training_of_its_own(tmp_path):
    workload = setup(TEXT)
    result = measure.Measurement()
    about = [workload.run.__self__.about(seed) for seed in (0, 1)]
    assert about[0] != about[1]
    assert "resumed" not in result.facts


# Through the command line, and with the hardest end there is.
ARGUMENTS = (
    "run", "--config=text", "--device=cpu", "--config.cases.text.model=tiny",
    "--config.cases.text.steps=40", "--config.cases.text.warmup=4", "--config.cases.text.batch=8",
    "--config.cases.text.length=64", "--config.cases.text.eval_every=8",
    "--config.cases.text.checkpoint_every=5", "--config.cases.text.exchange=int8",
    "--fake_devices=2", "--mesh=data:2", "--config.model.num_layers=1", "--config.model.width=32",
    "--config.model.mlp_width=64", "--config.model.num_heads=2", "--config.model.num_kv_heads=2",
)  # fmt: skip


def kill_at_random(folder, log) -> int:
    """Starts a training, kills all its processes once it has checkpoints; the newest one's step."""
    environ = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    command = [sys.executable, str(ROOT / "main.py"), *ARGUMENTS, f"--workdir={folder}"]
    running = subprocess.Popen(command, env=environ, start_new_session=True, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not finished(folder) and time.monotonic() < deadline:
            assert running.poll() is None, (folder.parent / "log").read_text()
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    return max(finished(folder))


def finished(folder) -> list[int]:
    return [int(f.name) for f in folder.glob("checkpoints/*/*") if f.name.isdecimal()]


def test_after_a_kill_a_training_ends_in_the_same_bits(main_py, tmp_path):
    done = main_py(*ARGUMENTS, "--workdir=whole")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "log").open("w") as log:
        step = kill_at_random(tmp_path / "killed", log)
    if step == 40:
        pytest.skip("the training was over before it could be killed")
    refused = main_py(*ARGUMENTS, "--workdir=killed")
    assert refused.returncode == 2
    assert "holds checkpoints of a run that was stopped: add --resume" in refused.stderr
    held = (tmp_path / "killed" / "config.json").read_text()
    other = main_py(*ARGUMENTS, "--resume", "--workdir=killed", "--config.seed=1")
    assert other.returncode == 2
    assert "holds checkpoints of another experiment (seed: 0 against 1)" in other.stderr
    assert (tmp_path / "killed" / "config.json").read_text() == held
    resumed = main_py("run", "--resume", "--workdir=killed", "--mesh=data:2", "--fake_devices=2")
    assert resumed.returncode == 0, resumed.stderr
    (whole,), (killed,) = (
        record.read(tmp_path / name / record.FILE_NAME).records for name in ("whole", "killed")
    )
    assert [entry["step"] for entry in killed.facts["resumed"]] == [step]
    assert f"It was carried on at step {step}." in resumed.stdout
    for name in ("step", "loss", "test_loss", "accuracy", "tokens"):
        assert killed.facts["curve"][name] == whole.facts["curve"][name]
    for name in ("losses", "inputs_checksum", "result_checksum"):
        assert killed.facts[name] == whole.facts[name]
    assert len(whole.samples_s) == 39
    # Last states too: what was kept of the arrays' bits is the same.
    sums = [
        next(tmp_path.glob(f"{name}/checkpoints/*/40/about/metadata")).read_text()
        for name in ("whole", "killed")
    ]
    found = [text[text.index("bit_sums") :] for text in sums]
    assert found[0] == found[1]
