"""The commands that the documents give are right: each is parsed, and what is quick is run."""

import re
import shlex

import pytest
from conftest import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(
    {
        re.split(r"  +", line.strip())[0]
        for document in DOCUMENTS
        for line in document.read_text().splitlines()
        if line.startswith("    python main.py")
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_documents_are_accepted(command, main_py, tmp_path):
    """With a mistake put behind it, a right command fails for that mistake alone."""
    words = shlex.split(command)[2:]
    if words[:1] == ["list"]:
        assert main_py(*words).returncode == 0
        return
    if words[:1] in (["compare"], ["summary"]):
        assert "cannot read records from runs/" in main_py(*words).stderr
        return
    if words[:1] == ["plan"]:
        if "--published" in words:
            assert main_py(*words).returncode == 0
        else:  # the mesh is what a plan's request is checked for last
            assert "--mesh=x: 'x' is not an axis" in main_py(*words, "--mesh=x").stderr
        return
    replay = [w for w in words if w.endswith("/config.json")]
    if replay or "--resume" in words:
        assert "config" in main_py(*words).stderr
        return
    # The working directory is what a run looks at last.
    done = main_py(*words, "--workdir=/dev/null/x")
    if "--device=gpu" in words:
        assert "no GPU is attached" in done.stderr or "cannot write" in done.stderr
    else:
        assert done.stderr.startswith("main.py: cannot write to --workdir=/dev/null/x")


def test_every_fact_and_flag_of_a_record_is_documented():
    from accel_bench.record import STATUSES

    text = (ROOT / "docs" / "records.md").read_text()
    for status in STATUSES:
        assert f"`{status}`" in text


def test_the_readme_names_the_test_command_that_ci_runs():
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    assert "pip install -e '.[aot,test]' && pytest" in readme
    assert "pip install --quiet -e '.[aot,test]'" in ci
    assert ci.rstrip().endswith("pytest")
