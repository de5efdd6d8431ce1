"""The page: sections in order, the scripts, and a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import hashlib
from collections.abc import Sequence
from importlib import resources

from accel_bench.claims.verdict import Judgement
from accel_bench.comparison import Comparison, Row
from accel_bench.report import (
    chips,
    claims,
    compiled_plots,
    measured_plots,
    overview,
    points,
    provenance,
    roofline,
    style,
    tables,
    training_plots,
)
from accel_bench.report.figure import Figure
from accel_bench.report.markup import escape, json_text, tag

# Workload -> the plots in its section; the others stand in a section before the workloads.
_PLOTS = {
    "": (roofline.roofline, compiled_plots.memory, compiled_plots.collectives),
    "matmul": (measured_plots.matmul, measured_plots.accuracy),
    "memory": (measured_plots.bandwidth, measured_plots.latency),
    "model": (compiled_plots.parts,),
    "training": (
        training_plots.accuracy_by_step,
        training_plots.accuracy_by_time,
        training_plots.loss_by_step,
        training_plots.loss_by_time,
        training_plots.loss_distance,
    ),
}


def html_text(found: Comparison, judged: Sequence[Judgement] = ()) -> str:
    """A comparison, or one run, as one HTML file that opens offline, below 8 MB.

    Judged claims stand before it.
    """
    groups: dict[str, list[Row]] = {}
    for row in found.rows:
        groups.setdefault(row.workload, []).append(row)
    plots = _plots(found)
    across = tag("h2", "Across workloads", id="across") + _html(plots[""]) if plots[""] else ""
    share = tables.MAX_CHARACTERS // max(len(groups), 1)
    sections = []
    for number, (name, rows) in enumerate(groups.items()):
        body = _html(plots.pop(name, [])) + tables.sections(found, name, rows, share)
        sections.append(tag("h2", escape(name), id=f"workload-{number}") + body)
    # Plots of workloads of which no row pairs.
    for name in (name for name in plots if name and plots[name]):
        sections.append(tag("h2", f"{name} (nothing pairs)") + _html(plots[name]))
    sections += [chips.html(found), provenance.html(found)]
    main = "".join(
        tag("section", section)
        for section in (
            claims.html(judged),
            overview.html(found),
            across,
            *sections,
        )
        if section
    )
    body = _header(found, list(groups), bool(across), bool(judged)) + tag(
        "main", main, id="main", tabindex=-1
    )
    return _document(found, body)


def _plots(found: Comparison) -> dict[str, list[Figure]]:
    placed = points.collect(found)
    left_out = len(found.sources) - points.MAX_SOURCES
    made = {
        name: [figure for make in makers if (figure := make(found, placed))]
        for name, makers in _PLOTS.items()
    }
    notes = []
    if left_out > 0:
        notes.append(f"The last {left_out} sources are in the tables and not in the plots.")
    if any(len(source.records) > points.MAX_OF_WORKLOAD for source in found.sources):
        most = f"{points.MAX_OF_WORKLOAD:,}"
        notes.append(f"Of each source at most {most} records of a workload, evenly spread.")
    return {
        name: [dataclasses.replace(figure, notes=[*figure.notes, *notes]) for figure in figures]
        for name, figures in made.items()
    }


def _html(figures: Sequence[Figure]) -> str:
    return "".join(figure.html() for figure in figures)


def _header(found: Comparison, workloads: Sequence[str], across: bool, claimed: bool) -> str:
    links = [("claims", "Claims")] if claimed else []
    links += [("sources", "Sources"), ("findings", "Findings"), ("legend", "How to read it")]
    links += [("across", "Across workloads")] if across else []
    links += [(f"workload-{number}", name) for number, name in enumerate(workloads)]
    links += [("chips", "Chips"), ("provenance", "Provenance")]
    nav = "".join(f'<li><a href="#{target}">{escape(name)}</a></li>' for target, name in links)
    boxes = "".join(
        f'<label class="k{number}"><input type="checkbox" checked data-source="{number}"> '
        f'<span class="key k{number}">{escape(source.letter)}</span> '
        f"{escape(source.target or source.device, 60)}</label>"
        for number, source in enumerate(found.sources)
    )
    return (
        '<a class="skip" href="#main">Skip to the content</a>'
        + tag("header", f"<h1>{escape(_title(found))}</h1>" + tag("nav", f"<ul>{nav}</ul>"))
        + f'<fieldset id="sources-shown" hidden><legend>Sources shown</legend>{boxes}</fieldset>'
        + '<p id="said" class="unseen" role="status"></p>'
    )


def _title(found: Comparison) -> str:
    """What the page is about; one source alone is compared with nothing."""
    devices = list(dict.fromkeys(s.target or s.device for s in found.sources))
    more = f" and {len(devices) - 3} more" if len(devices) > 3 else ""
    kind = "Comparison" if len(found.sources) > 1 else "Run"
    return f"{kind}: {', '.join(devices[:3])}{more}"


@functools.cache
def _plotly() -> tuple[str, str]:
    """plotly.js as compressed text, and the hash by which the page's policy knows it.

    Compressed since it is 4.8 MB, of which a reader who prints or reads tables needs nothing, and
    which would leave little room for rows.
    """
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    packed = base64.b64encode(gzip.compress(source.encode(), 9, mtime=0)).decode()
    return packed, _hash(source)


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _file(name: str) -> str:
    return resources.files("accel_bench.report").joinpath(name).read_text(encoding="utf-8")


def _document(found: Comparison, body: str) -> str:
    packed, plotly_hash = _plotly()
    script = _file("report.js")
    # plotly sets styles and draws pictures from data; nothing may be fetched, sent or embedded.
    policy = (
        f"default-src 'none'; script-src {_hash(script)} {plotly_hash}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    themes = json_text({"light": style.LIGHT, "dark": style.DARK})
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(_title(found))}</title>"
        f"<style>{style.css(len(found.sources))}{_file('report.css')}</style></head>"
        f"<body>{body}"
        "<noscript>Tables are complete; plots need JavaScript.</noscript>"
        f'<script type="application/json" id="themes">{themes}</script>'
        f'<script type="application/gzip" id="plotly">{packed}</script>'
        f"<script>{script}</script></body></html>\n"
    )
