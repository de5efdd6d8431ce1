"""What the notebooks' cells call, without a kernel."""

import re
import zipfile

import pytest
from test_record import make

from accel_bench import detect, notebook, record
from accel_bench.detect import Attached
from accel_bench.errors import RequestError, RunError
from accel_bench.record import Journal, JournalError


@pytest.fixture
def workdir(tmp_path):
    """A run of two products."""
    return write(tmp_path / "runs" / "cpu-a")


def write(path, **fields):
    path.mkdir(parents=True)
    journal = Journal(path / record.FILE_NAME, 0)
    for shape in ("64", "96"):
        journal.append(make(params={"shape": shape}, samples_s=[1e-3] * 11, **fields))
    journal.close()
    return path


def test_a_run_by_itself_is_reported_with_all_its_rows(workdir):
    page = notebook.report(workdir).text
    assert "<h1>Run: " in page and "1 source<" in page
    assert "nothing pairs" not in page and "What was not compared" not in page
    assert len(re.findall(r'<tr><th scope="row">(?:64|96)', page)) == 2


def test_a_report_is_shown_without_an_origin_of_its_own():
    shown = notebook.Report('<p title="x">&amp;</p>')._repr_html_()
    assert 'srcdoc="&lt;p title=&quot;x&quot;&gt;&amp;amp;&lt;/p&gt;"' in shown
    assert "allow-same-origin" not in shown


def test_one_run_is_not_compared(workdir, capsys):
    assert notebook.compare([workdir]) is None
    assert "Nothing to compare yet" in capsys.readouterr().out


def test_what_was_saved_is_found_again_elsewhere(workdir, tmp_path):
    packed = notebook.save(workdir)
    there = tmp_path / "elsewhere"
    (found,) = notebook.collect(there, [packed])
    assert found == there / "runs-cpu-a"
    assert notebook.collect(there) == [found]
    kept = (found / record.FILE_NAME).read_bytes()
    assert kept == (workdir / record.FILE_NAME).read_bytes()


@pytest.mark.parametrize(
    "name", ["../records.jsonl", "/etc/records.jsonl", "a/../../records.jsonl"]
)
def test_a_zip_writes_nowhere_else(name, workdir, tmp_path):
    packed = tmp_path / "hostile.zip"
    with zipfile.ZipFile(packed, "w") as opened:
        opened.write(workdir / record.FILE_NAME, name)
        opened.writestr("../evil.py", "")
    (found,) = notebook.collect(tmp_path / "there", [packed])
    assert found.parent == tmp_path / "there"
    assert [path.name for path in found.iterdir()] == [record.FILE_NAME]


def test_what_is_no_run_is_refused_in_one_line(tmp_path):
    wrong = tmp_path / "wrong.zip"
    wrong.write_text("no zip")
    with pytest.raises(RequestError, match=r"this is no zip: .*wrong\.zip"):
        notebook.collect(tmp_path, [wrong])
    with zipfile.ZipFile(wrong, "w") as opened:
        opened.writestr("notes.txt", "")
    with pytest.raises(RequestError, match=r"there are no records in .*wrong\.zip"):
        notebook.collect(tmp_path, [wrong])
    with pytest.raises(RequestError, match=r"cannot read .*none\.zip: No such file"):
        notebook.collect(tmp_path, [tmp_path / "none.zip"])


def test_colabs_services_are_refused_elsewhere(tmp_path):
    with pytest.raises(RequestError, match="Google Drive can be mounted on Google Colab only"):
        notebook.folder("a", drive=True)
    with pytest.raises(RequestError, match="works on Google Colab only"):
        notebook.collect(tmp_path, ["upload"])


@pytest.mark.parametrize(
    ("platform", "name", "wanted"),
    [
        ("tpu", "1 x TPU v5e", "tpu-v5e"),
        ("gpu", "1 x Tesla T4", "gpu-tesla-t4"),
        ("gpu", "1 x NVIDIA A100-SXM4-40GB", "gpu-a100-sxm4-40gb"),
        ("gpu", "8 x NVIDIA L4", "gpu-8-x-l4"),
        ("cpu", "Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores", "cpu-intel-xeon"),
        ("cpu", "AMD EPYC 9R45, 2 cores", "cpu-amd-epyc-9r45"),
    ],
)
def test_each_device_has_a_folder_of_its_own(platform, name, wanted, monkeypatch):
    names = {"cpu": "a CPU", platform: name}
    counts = {p: int(p == platform or p == "cpu") for p in detect.PLATFORMS}
    there = Attached(counts, dict.fromkeys(detect.PLATFORMS, True), names)
    monkeypatch.setattr(detect, "attached", lambda: there)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert notebook.device_name() == wanted


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "stopped"),
        (JournalError(28, "No space left on device"), "could not be written: No space left"),
    ],
)
def test_a_run_that_breaks_off_is_one_line(error, why, monkeypatch, tmp_path):
    import accel_bench

    def broken(*_, **__):
        raise error

    monkeypatch.setattr(accel_bench, "run", broken)
    with pytest.raises(RunError, match=f"{why}.*this cell carries on from there"):
        notebook.run("smoke", tmp_path)
