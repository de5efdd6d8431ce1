"""What the cells of `notebooks/` call, on Google Colab and in any Jupyter.

Nothing here parses flags. What a person asked for wrongly is one line and no traceback
(`accel_bench.errors`). Imports little: `install` runs before the suite's requirements are there.
"""

from __future__ import annotations

import html
import importlib.util
import io
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_bench import compilers, detect, requirements
from accel_bench.errors import RequestError, RunError

if TYPE_CHECKING:
    from accel_bench.comparison import Source
    from accel_bench.config import Config
    from accel_bench.record import Record

_DRIVE = Path("/content/drive")
_REPORT_NAME = "report.html"
# Far above what a run's records are, so that a file by mistake does not fill the disk.
_MAX_UNPACKED = 1 << 30


def install(with_compilers: bool = False, upgrade_jax: bool = False) -> None:
    """Brings what the suite needs and says so; see `accel_bench.requirements.install`."""
    print("\n".join(requirements.install(with_compilers, upgrade_jax)))


def describe(device: str = "auto") -> None:
    """Says what is attached, what would be measured on, and with which versions.

    Raises:
      RequestError: a device was named that is not there.
    """
    found = detect.attached()
    attached = [found.name[platform] for platform in ("tpu", "gpu") if found.counts[platform]]
    print(f"Attached: {', '.join(attached) or 'no TPU and no GPU'}; CPU: {found.name['cpu']}.")
    _, choice = detect.choose(device, found)
    print(f"{choice[0].upper()}{choice[1:]}.")
    names = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax")
    versions = [f"{name} {found}" for name in names if (found := compilers.version(name))]
    print(f"Python {sys.version.split()[0]}, {', '.join(versions)}.")


def folder(name: str, drive: bool = False) -> Path:
    """Where the runs of a notebook go: below `runs/`, or in the user's Google Drive.

    Args:
      name: of the folder; or a path, which is taken as it is where it is an absolute one.
      drive: whether it is in Google Drive.

    Raises:
      RequestError: there is no Google Drive here.
    """
    if not drive:
        return Path("runs") / name
    if not _on_colab():
        raise RequestError("Google Drive can be mounted on Google Colab only: DRIVE = False")
    from google.colab import drive as google_drive  # type: ignore[import-not-found]

    google_drive.mount(str(_DRIVE))
    return _DRIVE / "MyDrive" / "accel-bench" / name


def device_name(device: str = "auto") -> str:
    """The name of what is measured on, fit for a file: `tpu-v5e`, `gpu-tesla-t4`.

    Raises:
      RequestError: a device was named that is not there.
    """
    found = detect.attached()
    platform, _ = detect.choose(device, found)
    name = re.sub(
        r"^1 x |\(R\)|\(TM\)|\b(CPU|TPU|NVIDIA|Processor)\b|[,@].*", " ", found.name[platform]
    )
    return "-".join([platform, *re.findall(r"[a-z0-9.]+", name.lower())])


def run(config: Config | str | Path, workdir: str | Path, **fields: Any) -> list[Record]:
    """`accel_bench.run` with progress and tables; carries on where it was stopped.

    Args:
      config: a config, or the path or name of one.
      workdir: where records go. Cases that have a record there are not run again.
      **fields: fields of the config to set; None leaves one as it is.

    Raises:
      RequestError: the request is wrong; nothing was run.
      RunError: it was interrupted, or a record could not be written.
    """
    import accel_bench
    from accel_bench.record import JournalError

    try:
        return accel_bench.run(config, workdir=workdir, resume=True, show=True, **fields)
    except KeyboardInterrupt:
        why = "stopped"
    except JournalError as error:
        why = f"a record could not be written: {error.strerror or error}"
    raise RunError(f"{why}; what was done is in {workdir}, and this cell carries on from there")


@dataclass(frozen=True)
class Report:
    """The HTML report, shown as the output of a cell.

    Attributes:
      text: one file that opens offline.
    """

    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        # Without an origin of its own it reaches nothing outside its frame.
        return (
            f'<iframe srcdoc="{html.escape(self.text, quote=True)}" title="report" '
            'sandbox="allow-scripts allow-downloads" '
            'style="width:100%;height:800px;border:1px solid #8888"></iframe>'
        )


def report(*workdirs: str | Path) -> Report:
    """The report of one run by itself, or of several side by side.

    Raises:
      RequestError: there is nothing to read, or several runs have no row in common.
    """
    from accel_bench import comparison
    from accel_bench.report import html_text

    found = comparison.compare([Path(path) for path in workdirs], alone=True)
    return Report(html_text(found))


def compare(workdirs: Sequence[str | Path], wanted: Sequence[str] = ()) -> Report | None:
    """Prints runs side by side and returns their report; None where there are not two yet.

    Args:
      workdirs: of the runs.
      wanted: platforms that the comparison is meant to be of; it is said where one is not there.

    Raises:
      RequestError: a run cannot be read, or no row is about the same thing.
    """
    from accel_bench import compare as comparing
    from accel_bench import comparison, tables
    from accel_bench.report import html_text

    paths = [Path(path) for path in workdirs]
    sources = comparison.read_all(paths)
    if len(sources) < 2:
        there = sources[0].device if sources else "none"
        print(
            f"Nothing to compare yet. Runs that are there: {there}. Run this notebook on the other "
            "kind of runtime as well and name this run's zip in OTHERS there."
        )
        return None
    if said := _instead(sources, wanted):
        print(said)
    console = tables.make_console()
    with tables.in_one_piece(console):
        found = comparing.compare(paths, console)
    return Report(html_text(found))


def _instead(sources: Sequence[Source], wanted: Sequence[str]) -> str:
    """A sentence where a platform that a comparison is meant to be of takes no part."""
    there = {str(r.target.get("platform")) for source in sources for r in source.records}
    missing = [platform.upper() for platform in wanted if platform not in there]
    if not missing:
        return ""
    platforms = " and ".join(sorted(platform.upper() for platform in there))
    return (
        f"All of these runs are of {platforms}: this says nothing about a {' or a '.join(missing)}."
    )


def save(workdir: str | Path) -> Path:
    """Packs a run and its report into a zip beside it; on Colab the browser downloads it.

    Raises:
      RequestError: there is no run.
    """
    workdir = Path(workdir)
    text = report(workdir).text
    name = f"{workdir.resolve().parent.name}-{workdir.name}"
    path = workdir.parent / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(workdir.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                packed.write(file, f"{name}/{file.name}")
        packed.writestr(f"{name}/{_REPORT_NAME}", text)
    print(f"Results and report: {path.resolve()}")
    if _on_colab() and not path.resolve().is_relative_to(_DRIVE):
        from google.colab import files  # type: ignore[import-not-found]

        files.download(str(path))
    return path


def collect(place: str | Path, others: Sequence[str | Path] = ()) -> list[Path]:
    """All runs of a notebook: those in its folder, and those that came from elsewhere.

    Args:
      place: the folder; zips are unpacked into it.
      others: zips that `save` made, workdirs, or `upload`, which asks for zips (Colab).

    Raises:
      RequestError: one of them is no run.
    """
    place = Path(place)
    elsewhere = []
    for other in others:
        if str(other) == "upload":
            elsewhere += [_unpack(name, data, place) for name, data in _uploaded().items()]
        elif Path(other).is_dir():
            elsewhere.append(Path(other))
        else:
            try:
                elsewhere.append(_unpack(str(other), Path(other).read_bytes(), place))
            except OSError as error:
                raise RequestError(
                    f"cannot read {other}: {error.strerror or error}; give a workdir, or the zip "
                    "of one"
                ) from error
    here = [file.parent for file in sorted(place.glob("*/records.jsonl"))]
    return list(dict.fromkeys(path.resolve() for path in [*here, *elsewhere]))


def _uploaded() -> dict[str, bytes]:
    if not _on_colab():
        raise RequestError('"upload" works on Google Colab only: name the paths of zips in OTHERS')
    from google.colab import files  # type: ignore[import-not-found]

    return files.upload()


def _unpack(name: str, data: bytes, place: Path) -> Path:
    """The workdir that a zip holds, unpacked; nothing else of it is written."""
    wanted = f"{name}: give the zip that this notebook made of a run"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = {Path(entry.filename).name: entry for entry in packed.infolist()}
            files = {n: entries[n] for n in ("config.json", "records.jsonl") if n in entries}
            if "records.jsonl" not in files:
                raise RequestError(f"there are no records in {wanted}")
            if sum(entry.file_size for entry in files.values()) > _MAX_UNPACKED:
                raise RequestError(f"too large to be a run's records: {wanted}")
            texts = {n: packed.read(entry) for n, entry in files.items()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise RequestError(f"this is no zip: {wanted}") from error
    # Browsers number the copies of a download; the folder in it keeps the run's name.
    folder_name = Path(files["records.jsonl"].filename).parent.name or Path(name).stem
    workdir = place / (re.sub(r"[^\w.-]", "_", folder_name).strip(".") or "run")
    workdir.mkdir(parents=True, exist_ok=True)
    for file_name, text in texts.items():
        (workdir / file_name).write_bytes(text)
    return workdir


def _on_colab() -> bool:
    try:
        return importlib.util.find_spec("google.colab") is not None
    except ModuleNotFoundError:  # there is no package google at all
        return False
