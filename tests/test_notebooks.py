"""The notebooks run cell by cell, as a person runs them, and say what they should."""

import ast
import json
import os
import re
import shutil
import sys
import zipfile

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from accel_bench import compilers, detect, record, target

sys.path.insert(0, str(ROOT / "notebooks"))
import set_owner  # pyright: ignore[reportMissingImports]

# The kernel is this Python, whatever kernels and settings the user has.
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
PRODUCT = {"it": {"workload": "matmul", "shape": ["64", "96"]}}


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def parameters_cell(book):
    (index,) = [
        i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", [])
    ]
    return index


def execute(book, **values):
    """Runs all cells with these values in the place of the notebook's own, as papermill does."""
    index = parameters_cell(book)
    defined = {
        name.id
        for line in ast.parse(book.cells[index].source).body
        if isinstance(line, ast.Assign)
        for name in line.targets
        if isinstance(name, ast.Name)
    }
    assert set(values) <= defined
    text = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    book.cells.insert(index + 1, nbformat.v4.new_code_cell(text))
    environ = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    environ["IPYTHONDIR"] = f"{os.environ['XDG_CACHE_HOME']}/ipython"  # a folder of these tests
    place = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(book, timeout=300, resources=place).execute(env=environ)
    return {cell.id: shown(cell) for cell in book.cells if cell.cell_type == "code"}


def shown(cell):
    """All that stands below a cell, as text and HTML."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts += [output.get("text", ""), *data.values(), *output.get("traceback", [])]
    return "\n".join(map(str, parts))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A config that is measured in no time."""
    plain = {"name": "tiny", "cases": PRODUCT, "precision": ["fp32"],
             "measure": {"max_seconds": 0.05}}  # fmt: skip
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps(plain))
    return str(path)


@pytest.fixture(scope="module")
def quickstart(tiny, tmp_path_factory):
    """The quickstart's outputs, and where its run is."""
    place = tmp_path_factory.mktemp("runs") / "quick"
    return execute(read("quickstart"), NAME=str(place), CONFIG=tiny, DEVICE="cpu"), place


def test_quickstart_measures_and_shows_it(quickstart):
    shown, place = quickstart
    assert "nothing was installed" in shown["install"]
    assert detect.cpu_model() in shown["describe"]
    assert f"jax {compilers.version('jax')}" in shown["describe"]
    assert "2 of 2 done" in shown["run"]
    assert "FLOP/s" in shown["run"] and "2 ok" in shown["run"]
    (workdir,) = (path for path in place.iterdir() if path.is_dir())
    assert workdir.name.startswith("cpu-")
    assert [r.status for r in record.read(workdir / "records.jsonl").records] == ["ok", "ok"]


def test_the_report_is_shown_below_its_cell(quickstart):
    frame = quickstart[0]["report"]
    page = re.search(r'<iframe srcdoc="([^"]*)"[^>]*sandbox="allow-scripts allow-downloads"', frame)
    assert page
    assert "&lt;h1&gt;Run: " in page[1] or "<h1>Run: " in page[1]
    assert "workload-0" in page[1]


def test_results_are_packed(quickstart):
    shown, place = quickstart
    (packed,) = place.glob("*.zip")
    assert str(packed) in shown["save"]
    with zipfile.ZipFile(packed) as opened:
        names = {name.split("/")[1] for name in opened.namelist()}
        assert len({name.split("/")[0] for name in opened.namelist()}) == 1
    assert names == {"config.json", "records.jsonl", "report.html", "worker.log"}


def test_two_runs_are_compared_and_called_what_they_are(quickstart, tiny, tmp_path):
    _, place = quickstart
    (packed,) = place.glob("*.zip")
    shown = execute(
        read("gpu_vs_tpu"), NAME=str(tmp_path / "both"), CONFIG=tiny, DEVICE="cpu",
        OTHERS=[str(packed)],
    )  # fmt: skip
    assert (
        "All of these runs are of CPU: this says nothing about a GPU or a TPU."
        in (shown["compare"])
    )
    assert "B / A" in shown["compare"]
    assert "<iframe srcdoc=" in shown["compare"]


def test_compile_only_compiles_or_says_what_is_missing(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"name": "tiny", "cases": PRODUCT, "precision": ["bf16"]}))
    names = "tpu:v5e:1x1,gpu:h100_sxm:1"
    shown = execute(
        read("compile_only"), NAME=str(tmp_path / "runs"), CONFIG=str(config), TARGETS=names,
        MODEL_CONFIG=str(config), MODEL_TARGETS=names,
    )  # fmt: skip
    rows = record.read(tmp_path / "runs" / "product" / "records.jsonl").records
    for name in names.split(","):
        missing = compilers.find(target.parse(name)).missing
        statuses = {r.status for r in rows if r.target["platform"] == name[:3]}
        assert statuses == {"unsupported" if missing else "ok"}
        assert (f"No compiler for {name[:3]}: " in shown["install"]) == bool(missing)
        if missing:
            assert f"{missing}" in shown["install"] and "pip install" in missing
        assert name in shown["compare"]
    assert "<iframe srcdoc=" in shown["compare"]


def test_a_wrong_request_is_one_line(tmp_path):
    book = read("quickstart")
    with pytest.raises(CellExecutionError):
        execute(book, NAME=str(tmp_path / "runs"), CONFIG="configs/colap.py", DEVICE="cpu")
    (cell,) = [cell for cell in book.cells if cell.get("id") == "run"]
    (error,) = [output for output in cell.outputs if output.output_type == "error"]
    assert error.traceback == [f"RequestError: {error.evalue}"]
    assert "did you mean 'configs/colab.py'" in error.evalue
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_not_in_the_repository(name):
    for cell in read(name).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_short_and_choices_are_in_one_place(name):
    book = read(name)
    code = [cell.source for cell in book.cells if cell.cell_type == "code"]
    assert all(len(source.splitlines()) <= 15 for source in code)
    assert book.cells[parameters_cell(book)].source == code[0]
    assert any("Not claimed" in cell.source for cell in book.cells)


def test_every_address_is_the_one_that_pyproject_gives():
    name = set_owner.current()
    for path in NOTEBOOKS:
        text = path.read_text()
        badge = f"colab.research.google.com/github/{name}/blob/main/notebooks/{path.name}"
        assert badge in text
        assert badge in (ROOT / "docs" / "colab.md").read_text()
        assert f'SOURCE = \\"https://github.com/{name}\\"' in text
    for path in set_owner.files():
        named = re.findall(r"google\.com/github/([\w.-]+/[\w.-]+)", path.read_text())
        assert set(named) <= {name}, path


def test_one_command_sets_the_owner_everywhere(tmp_path):
    for path in set_owner.files():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    was = set_owner.current()
    changed = set_owner.set_owner("alice/bench.jax", tmp_path)
    assert {path.name for path in changed} >= {"pyproject.toml", "colab.md", "quickstart.ipynb"}
    assert set_owner.current(tmp_path) == "alice/bench.jax"
    texts = [path.read_text() for path in set_owner.files(tmp_path)]
    assert not any(was in text for text in texts)
    nbformat.read(tmp_path / "notebooks" / "quickstart.ipynb", as_version=4)
    with pytest.raises(SystemExit, match="is no OWNER/REPOSITORY"):
        set_owner.set_owner("alice", tmp_path)
