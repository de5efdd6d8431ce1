"""The commands that the documents give are right: each is parsed, and what is quick is run."""

import re
import shlex

import pytest
from conftest import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(
    {
        re.split(r"  +", (indented or quoted).strip())[0]
        for document in DOCUMENTS
        for indented, quoted in re.findall(
            r"^    (python main\.py.*)|`(python main\.py [^`]*)`",
            re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL),
            re.MULTILINE,
        )
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_documents_are_accepted(command, quick_main_py, tmp_path):
    """With a mistake put behind it, a right command fails for that mistake alone."""
    words = shlex.split(command)[2:]
    if words[:1] in (["list"], ["--help"]):
        assert quick_main_py(*words).returncode == 0
        return
    if words[:1] in (["compare"], ["summary"]):
        assert "cannot read records from runs/" in quick_main_py(*words).stderr
        return
    if words[:1] == ["plan"]:
        if "--published" in words:
            assert quick_main_py(*words).returncode == 0
        else:  # the mesh is what a plan's request is checked for last
            assert "--mesh=x: 'x' is not an axis" in quick_main_py(*words, "--mesh=x").stderr
        return
    replay = [w for w in words if w.endswith("/config.json")]
    if replay or "--resume" in words:
        assert "config" in quick_main_py(*words).stderr
        return
    # The working directory is what a run looks at last.
    done = quick_main_py(*words, "--workdir=/dev/null/x")
    if "--device=gpu" in words:
        assert "no GPU is attached" in done.stderr or "cannot write" in done.stderr
    else:
        assert done.stderr.startswith("main.py: cannot write to --workdir=/dev/null/x")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_points_to_is_there(document):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), link


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


def examples(name: str) -> list[str]:
    """The Python examples of a document."""
    text = (ROOT / "docs" / name).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def entry(table: str) -> tuple[str, str]:
    """Key and value of the example that adds an entry to a table."""
    (found,) = (
        (match[1], match[2])
        for example in examples("extending.md")
        if (match := re.match(rf'# {table}\["(\w+)"\] =\n(.*)', example, re.DOTALL))
    )
    return found


def test_the_chip_of_the_documents_is_one_entry(monkeypatch, capsys):
    from accel_bench import chips, listing, target
    from accel_bench.errors import RequestError

    name, text = entry("CHIPS")
    chip = eval(text, {"Chip": chips.Chip})
    monkeypatch.setitem(chips.CHIPS, name, chip)
    listing.show_chips([name])
    shown = capsys.readouterr().out
    assert name in shown and "364.2" in shown and "960" in shown
    assert chips.find_chip(chip.device_kinds[0]) == name
    with pytest.raises(RequestError, match=name):  # without clock and cores: no target
        target.parse(f"gpu:{name}:1")


def test_the_precision_and_the_workload_of_the_documents_run(monkeypatch, tmp_path):
    import sys
    import types

    import accel_bench
    from accel_bench import precision, workloads

    name, text = entry("PRECISIONS")
    monkeypatch.setitem(precision.PRECISIONS, name, eval(text, vars(precision).copy()))
    config = None
    for example in examples("extending.md"):
        match = re.match(r"# (accel_bench/workloads/(\w+)|configs/\w+)\.py\n", example)
        if match and match[2]:
            module = types.ModuleType(f"accel_bench.workloads.{match[2]}")
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(example, vars(module))
        elif match:
            study: dict = {}
            exec(example, study)
            config = study["get_config"]()
    key, text = entry("WORKLOADS")
    params = sys.modules["accel_bench.workloads.softmax_params"]
    spec = eval(text, {"Spec": workloads.Spec, "softmax_params": params})
    monkeypatch.setitem(workloads.WORKLOADS, key, spec)
    assert config is not None
    config.cases.product = {"workload": "matmul", "shape": "64"}
    config.measure.max_seconds = 0.05
    rows = accel_bench.run(
        config, device="cpu", isolation="none", precision=f"{name},bf16", workdir=tmp_path / "run"
    )
    assert [row.status for row in rows] == ["ok"] * 6, [row.reason for row in rows]
    assert {row.precision for row in rows} == {name, "bf16"}
    assert sum(row.workload == key for row in rows) == 4


def test_the_config_of_the_documents_is_a_plan():
    from accel_bench.plan import make_plan

    (example,) = examples("configs.md")
    study: dict = {}
    exec(example, study)
    plan = make_plan(study["get_config"]())
    assert len(plan.jobs) == 2 * (3 + 1)
