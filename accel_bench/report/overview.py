"""What takes part, what differs besides the hardware, what was found, and how to read the marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from accel_bench import comparison, derive, findings, mesh
from accel_bench.comparison import Comparison, Source
from accel_bench.report.markup import escape, listed, scrolling, tag

_LEGEND = (
    ("m", "● measured", "timed on the device, with ± half of its 95 % interval"),
    ("e", "○ ~ estimate", "the vendor's compiler counted cycles; nothing was run"),
    ("b", "△ <= or >= bound", "arithmetic, traffic and links allow no better; nothing was run"),
)
_MAX_FINDINGS = 60


def html(found: Comparison) -> str:
    """The overview's sections."""
    return (
        _sources(found)
        + _findings(found)
        + _block("What differs between the environments", list(_differences(found)), "warn")
        + _block("What was not compared", found.unpaired, "warn")
        + _block("Problems of reading", [p for s in found.sources for p in s.problems], "warn")
        + _legend(found)
    )


def _sources(found: Comparison) -> str:
    head = ("source", "device or target", "mesh", "records", "statuses", "path")
    rows = "".join(_source(n, source, found) for n, source in enumerate(found.sources))
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    table = (
        f"<table><caption>{escape(_counted(found))}</caption>"
        f"<thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"
    )
    return tag("h2", "Sources", id="sources") + scrolling(table, "Sources")


def _counted(found: Comparison) -> str:
    if len(found.sources) == 1:
        return "1 source"
    letter = found.sources[found.reference].letter
    return f"{len(found.sources)} sources; ratios are to {letter}"


def _source(number: int, source: Source, found: Comparison) -> str:
    meshes = sorted({mesh.text(record.mesh) or "one device" for record in source.records})
    counts = Counter(record.status for record in source.records)
    is_reference = number == found.reference and len(found.sources) > 1
    letter = f"{source.letter} (reference)" if is_reference else source.letter
    cells = (
        source.device,
        " and ".join(meshes),
        len(source.records),
        ", ".join(f"{count} {status}" for status, count in counts.most_common()),
        source.path,
    )
    named = f'<th scope="row"><span class="key k{number}">{escape(letter)}</span></th>'
    return f"<tr>{named}{''.join(tag('td', escape(cell)) for cell in cells)}</tr>"


def _block(title: str, lines: list[str], kind: str) -> str:
    return tag("h3", title) + listed(lines, class_=kind) if lines else ""


def _differences(found: Comparison) -> Iterator[str]:
    """Versions and settings in which a source differs from the reference; equal ones together."""
    reference = found.sources[found.reference]
    letters: dict[str, list[str]] = {}
    for source in found.sources:
        if source is not reference:
            for line in comparison.environment_differences(reference, source):
                letters.setdefault(line, []).append(source.letter)
    for line, named in letters.items():
        yield f"{reference.letter} / {', '.join(named)}: {line}"


def _findings(found: Comparison) -> str:
    from accel_bench import compare_findings

    texts = [finding.text for finding in compare_findings.of_comparison(found)]
    if len(found.sources) == 1:
        texts += _of_run(found.sources[0])
    if not texts:
        return tag("h2", "Findings", id="findings") + tag("p", "No row says more than its table.")
    shown = listed(texts[:_MAX_FINDINGS], class_="findings")
    if len(texts) > _MAX_FINDINGS:
        rest = len(texts) - _MAX_FINDINGS
        shown += tag("p", f"And {rest} more: compare in a terminal shows them all.", class_="note")
    return tag("h2", "Findings", id="findings") + shown


def _of_run(source: Source) -> Iterator[str]:
    """What a run shows by itself, as under its tables."""
    if not source.target:
        best = derive.ceilings(source.records)
        for name, records in derive.by_workload(source.records).items():
            yield from findings.of_workload(name, records, best)


def _legend(found: Comparison) -> str:
    reference = escape(found.sources[found.reference].letter)
    terms = "".join(
        f'<dt class="{kind}">{escape(mark)}</dt><dd>{escape(words)}</dd>'
        for kind, mark, words in _LEGEND
    )
    terms += (
        "<dt>*</dt><dd>the fastest measured of its row, by its interval</dd>"
        f"<dt>2.00x</dt><dd>so many times as fast as {reference}; ~1: the intervals overlap; "
        "?: they are too wide to tell; ~2.00x: a ratio of estimates or bounds; none: the two "
        "are of different origin</dd>"
        "<dt>(63 %)</dt><dd>share of the published peak; of a CPU, of its best measured case</dd>"
        "<dt>-</dt><dd>no such record; an empty cell is a figure that is not known</dd>"
    )
    return tag("h2", "How to read it", id="legend") + f"<dl>{terms}</dl>"
