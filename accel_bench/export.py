"""A comparison as CSV, Markdown and JSON: one entry for each record of each row."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_bench import compare_findings, markdown, mesh
from accel_bench.compare import LEGEND, notes, ratio_text, value_text
from accel_bench.comparison import Cell, Comparison, Row, Source
from accel_bench.derive import flags
from accel_bench.energy_findings import joules
from accel_bench.errors import RequestError
from accel_bench.record import strict, strict_json


def entries(found: Comparison) -> Iterator[dict[str, Any]]:
    """Plain entries, times in seconds and rates per second; None where a figure is not known."""
    for row in found.rows:
        for source, cell in zip(found.sources, row.cells, strict=True):
            if cell is not None:
                yield _entry(row, source, cell)


def _entry(row: Row, source: Source, cell: Cell) -> dict[str, Any]:
    record, seconds, rate = cell.record, cell.seconds, cell.rate
    target = record.target
    return {
        "workload": row.workload,
        "case": row.label,
        "precision": row.precision,
        "implementation": row.implementation,
        "source": source.letter,
        "path": str(source.path),
        "platform": target.get("platform"),
        "device_kind": target.get("device_kind"),
        "chip": target.get("chip"),
        "topology": target.get("topology"),
        "mesh": mesh.text(record.mesh),
        "num_devices": target.get("num_devices"),
        "num_chips": target.get("num_chips"),
        "origin": cell.origin or None,
        "status": record.status,
        "reason": record.reason,
        "seconds": seconds and seconds.value,
        "seconds_low": seconds and seconds.low,
        "seconds_high": seconds and seconds.high,
        "samples": len(record.samples_s),
        "rate": rate and rate.value,
        "rate_low": rate and rate.low,
        "rate_high": rate and rate.high,
        "rate_unit": rate and rate.unit,
        "rate_per_device": cell.per_device,
        "rate_per_chip": cell.per_chip,
        "fraction": cell.fraction and cell.fraction.value,
        "fraction_of": cell.fraction and cell.fraction.of,
        "ratio": cell.ratio,
        "claim": cell.claim or None,
        "fastest": cell.fastest,
        "joules_per_step": joules(record, "joules_per_step"),
        "joules_per_step_above_idle": joules(record, "joules_per_step_above_idle"),
        "joules_per_token": joules(record, "joules_per_token"),
        "error": record.facts.get("error"),
        "flags": " ".join(flags(record)),
        "config_hash": record.config_hash,
        "params": json.dumps(strict(record.params), sort_keys=True),
    }


def csv_text(found: Comparison) -> str:
    """Comma-separated values with a header line."""
    out = io.StringIO()
    rows = list(entries(found))
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _harmless(value: Any) -> Any:
    """Text that no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return value
    plain = "".join(c if c.isprintable() else " " for c in value)
    return f"'{plain}" if plain.lstrip()[:1] in ("=", "+", "-", "@") else plain


def json_text(found: Comparison) -> str:
    """Sources, entries, findings and what did not pair, as strict JSON."""
    plain = {
        "reference": found.sources[found.reference].letter,
        "sources": [
            {
                "letter": source.letter, "device": source.device, "target": source.target or None,
                "path": str(source.path), "records": len(source.records),
                "problems": source.problems,
            }
            for source in found.sources
        ],
        "rows": list(entries(found)),
        "findings": [
            {"text": finding.text, "rows": list(finding.rows)}
            for finding in compare_findings.of_comparison(found)
        ],
        "unpaired": found.unpaired,
    }  # fmt: skip
    return strict_json(plain)


def markdown_text(found: Comparison) -> str:
    """A table for each workload, the sources as columns, and the findings under them."""
    reference = found.sources[found.reference].letter
    lines = [f"- {markdown.cell(source.name)}" for source in found.sources]
    lines += ["", markdown.cell(LEGEND.format(reference=reference))]
    for workload in dict.fromkeys(row.workload for row in found.rows):
        header = ["case", "precision"]
        rows = [row for row in found.rows if row.workload == workload]
        compared = [
            any(map(ratio_text, cells)) for cells in zip(*(r.cells for r in rows), strict=True)
        ]
        for source, has_ratio in zip(found.sources, compared, strict=True):
            header += [source.letter, *([f"{source.letter} / {reference}"] if has_ratio else [])]
        header.append("note")
        lines += [
            "",
            f"### {markdown.cell(workload)}",
            "",
            *markdown.header(header),
        ]
        for row in rows:
            library = "" if row.implementation == "xla" else f" {row.implementation}"
            cells = [row.label + library, row.precision]
            for cell, has_ratio in zip(row.cells, compared, strict=True):
                cells += [value_text(cell), *([ratio_text(cell)] if has_ratio else [])]
            cells.append(notes([source.letter for source in found.sources], row))
            lines.append(markdown.line(cells))
    said = [*(f.text for f in compare_findings.of_comparison(found)), *found.unpaired]
    lines += ["", *(f"- {markdown.cell(text)}" for text in said)]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all; a pipe or device is written to as it is.

    Raises:
      RequestError: it cannot be written.
    """
    # A record may hold half a surrogate pair, which no encoding has.
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # not the link, but what it points to
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(path: Path, data: bytes) -> None:
    file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115
    try:
        with file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)  # as an ordinary new file
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise
