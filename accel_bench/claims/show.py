"""The claims report in a terminal, as Markdown and as JSON. The HTML is in `accel_bench.report`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from accel_bench.claims.criteria import RULES
from accel_bench.claims.verdict import (
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    NOT_TESTABLE,
    VERDICTS,
    Evidence,
    Judgement,
)
from accel_bench.comparison import Source
from accel_bench.record import strict_json
from accel_bench.tables import literal

STYLES = {CONFIRMED: "green", CONTRADICTED: "red", DEPENDS: "yellow", NOT_TESTABLE: "dim"}


def counts(judged: Sequence[Judgement]) -> str:
    """How many claims ended how: `7 confirmed, 4 contradicted`."""
    found = Counter(judgement.verdict for judgement in judged)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])


def evidence_text(evidence: Evidence) -> str:
    """The sentence, behind it what it rests on."""
    return f"{evidence.text} [{evidence.source}]" if evidence.source else evidence.text


def show(judged: Sequence[Judgement], sources: Sequence[Source], console: Console) -> None:
    """Prints the table of verdicts, then each claim's parts with their evidence, then the rules."""
    for source in sources:
        console.print(literal(f"{source.name}  ({source.path})"), soft_wrap=True)
        for problem in source.problems:
            console.print(literal(f"  {problem}", "yellow"), soft_wrap=True)
    title = f"claims: {counts(judged)}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("stated", overflow="fold", ratio=2)
    table.add_column("verdict", no_wrap=True)
    table.add_column("because", overflow="fold", ratio=5)
    for judgement in judged:
        claim = judgement.claim
        cells = (str(claim.number), claim.statement, claim.stated or "no figure")
        style = STYLES[judgement.verdict]
        table.add_row(
            *map(literal, cells), literal(judgement.shown, style), literal(judgement.because)
        )  # fmt: skip
    console.print(table)
    for judgement in judged:
        for text, style in _details(judgement):
            console.print(literal(text, style), soft_wrap=True)
    console.print(literal("How verdicts are found", "bold"))
    for rule in RULES:
        console.print(literal(f"  {rule}"), soft_wrap=True)


def _details(judgement: Judgement) -> Iterator[tuple[str, str]]:
    """Lines of one claim, and the style of each."""
    claim = judgement.claim
    yield f"{claim.number}. {claim.statement}: {judgement.verdict}", "bold"
    for part in judgement.parts:
        yield f"   {part.said}: {part.verdict}: {part.why}", STYLES[part.verdict]
        first, more = part.shown
        for evidence in first:
            yield f"     {evidence.kind:10}  {evidence_text(evidence)}", ""
        if more:
            yield f"     and {more} more: --json=FILE has them all", ""
        if part.needs:
            yield f"     to test it  {part.needs}", "dim"
    for experiment in claim.experiments:
        yield f"   {experiment}", "dim"
    yield "", ""


def plain(judged: Sequence[Judgement], sources: Sequence[Source]) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "sources": [
            {
                "letter": source.letter, "device": source.device, "target": source.target or None,
                "path": str(source.path), "problems": source.problems,
            }
            for source in sources
        ],
        "rules": list(RULES),
        "claims": [
            {
                "number": judgement.claim.number,
                "statement": judgement.claim.statement,
                "stated": judgement.claim.stated or None,
                "verdict": judgement.verdict,
                "experiments": list(judgement.claim.experiments),
                "parts": [
                    {
                        "said": part.said,
                        "verdict": part.verdict,
                        "why": part.why,
                        "needs": part.needs or None,
                        "figure": part.figure and dataclasses.asdict(part.figure),
                        "evidence": [
                            {"kind": e.kind, "text": e.text, "source": e.source or None}
                            for e in part.evidence
                        ],
                    }
                    for part in judgement.parts
                ],
            }
            for judgement in judged
        ],
    }  # fmt: skip


def json_text(judged: Sequence[Judgement], sources: Sequence[Source]) -> str:
    """The report as strict JSON."""
    return strict_json(plain(judged, sources))


def markdown_text(judged: Sequence[Judgement], sources: Sequence[Source]) -> str:
    """The report as Markdown: the table, then each claim."""
    from accel_bench.markdown import cell, line

    lines = [f"- {cell(source.name)}" for source in sources]
    lines += ["", f"### Claims: {counts(judged)}", ""]
    lines += [line(["#", "claim", "stated", "verdict", "because"]), line(["---"] * 5)]
    for judgement in judged:
        claim = judgement.claim
        cells = [str(claim.number), claim.statement, claim.stated or "no figure"]
        lines.append(line([*cells, judgement.shown, judgement.because]))
    for judgement in judged:
        claim = judgement.claim
        lines += ["", f"**{claim.number}. {cell(claim.statement)}: {judgement.verdict}**", ""]
        for part in judgement.parts:
            lines.append(f"- {cell(part.said)}: **{part.verdict}**: {cell(part.why)}")
            first, more = part.shown
            for evidence in first:
                lines.append(f"  - *{evidence.kind}*: {cell(evidence_text(evidence))}")
            if more:
                lines.append(f"  - and {more} more")
            if part.needs:
                lines.append(f"  - to test it: {cell(part.needs)}")
    lines += ["", "**How verdicts are found**", "", *(f"- {cell(rule)}" for rule in RULES)]
    return "\n".join(lines) + "\n"
