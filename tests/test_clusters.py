"""The launch files for clusters: what can be checked of them without one."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT

FOLDER = ROOT / "docs" / "clusters"
SHELL_FILES = sorted([*FOLDER.glob("*.sh"), *FOLDER.glob("*.sbatch")])
YAML_FILES = sorted(FOLDER.glob("*.yaml"))
TEXTS = [ROOT / "docs" / "clusters.md", *SHELL_FILES, *YAML_FILES]


def name_of(path):
    return path.name


def commands(text):
    """What follows `main.py` in each command of a text, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", text)
    found = [line.split("main.py ", 1)[1] for line in text.splitlines() if "main.py " in line]
    return [command for command in found if command.startswith("run ")]


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("path", SHELL_FILES, ids=name_of)
def test_shell_files_parse(path):
    subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("path", YAML_FILES, ids=name_of)
def test_job_sets_have_as_many_pods_as_they_say(path):
    yaml = pytest.importorskip("yaml")
    job_set = yaml.safe_load(path.read_text())
    assert job_set["kind"] == "JobSet"
    (group,) = job_set["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    assert job["parallelism"] == job["completions"] > 1
    (container,) = job["template"]["spec"]["containers"]
    (chips,) = container["resources"]["limits"].values()
    (command,) = commands(container["command"][-1])
    assert f"--mesh=data:{chips * job['completions']} " in command
    if "--coordinator" in command:
        name = job_set["metadata"]["name"]
        assert f"--coordinator={name}-{group['name']}-0-0.{name}:" in command
        assert f"--num_processes={job['completions']} " in command


def test_the_slurm_file_starts_one_process_per_gpu():
    text = (FOLDER / "slurm.sbatch").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", text, re.MULTILINE))
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    processes = int(options["nodes"]) * int(options["ntasks-per-node"])
    assert f"--mesh=data:{processes} " in commands(text)[0]


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_commands_use_flags_and_configs_that_there_are(path):
    source = (ROOT / "main.py").read_text()
    defined = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    found = commands(path.read_text())
    assert found
    for command in found:
        assert set(re.findall(r"--(\w+)", command)) <= defined
        for config in re.findall(r"--config=([\w./]+\.py)", command):
            assert (ROOT / config).is_file()


def test_every_launch_file_is_named_in_the_document():
    text = (ROOT / "docs" / "clusters.md").read_text()
    assert all(f"(clusters/{path.name})" in text for path in FOLDER.iterdir())
