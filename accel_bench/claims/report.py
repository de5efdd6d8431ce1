"""The command `compare --claims`: judges the claims by runs and writes what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from accel_bench import comparison
from accel_bench.claims import judge, show
from accel_bench.claims.verdict import Judgement
from accel_bench.errors import RequestError
from accel_bench.tables import make_console


@dataclass(frozen=True)
class Outputs:
    """Files to write beside what is printed; None writes none."""

    html: Path | None = None
    markdown: Path | None = None
    json: Path | None = None


def report(
    paths: Sequence[Path], console: Console | None = None, outputs: Outputs | None = None
) -> list[Judgement]:
    """Reads runs, of one machine or of several, judges every claim, prints and writes it.

    Raises:
      RequestError: no path, one that cannot be read or has no records, or a file not to be written.
    """
    from accel_bench import export

    if not paths:
        raise RequestError(
            "--claims needs the workdirs of one run or more: python main.py compare --claims DIR"
        )
    sources = comparison.read_all(paths)
    judged = judge(sources)
    outputs = outputs or Outputs()
    if outputs.markdown:
        export.write(outputs.markdown, show.markdown_text(judged, sources))
    if outputs.json:
        export.write(outputs.json, show.json_text(judged, sources))
    if outputs.html:
        from accel_bench.report import html_text

        export.write(outputs.html, html_text(comparison.pair(sources), judged))
    show.show(judged, sources, console or make_console())
    return judged
