"""The claims: a table of verdicts, and below it each claim with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from accel_bench.claims.criteria import RULES
from accel_bench.claims.show import counts
from accel_bench.claims.verdict import (
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    NOT_TESTABLE,
    Evidence,
    Judgement,
    Part,
)
from accel_bench.report.markup import escape, listed, scrolling, tag

# A verdict is told by its word; mark and colour only help to find it.
_MARKS = {CONFIRMED: "✓", CONTRADICTED: "✗", DEPENDS: "~", NOT_TESTABLE: "?"}
_CLASSES = {CONFIRMED: "yes", CONTRADICTED: "no", DEPENDS: "maybe", NOT_TESTABLE: "open"}


def html(judged: Sequence[Judgement]) -> str:
    """The section; empty without claims."""
    if not judged:
        return ""
    return (
        tag("h2", "Claims", id="claims")
        + tag("p", escape(f"{counts(judged)}. A number leads to the evidence."))
        + _table(judged)
        + "".join(map(_details, judged))
        + tag("h3", "How verdicts are found")
        + listed(RULES)
    )


def _verdict(verdict: str, shown: str = "") -> str:
    text = escape(f"{_MARKS[verdict]} {shown or verdict}")
    return tag("span", text, class_=f"v-{_CLASSES[verdict]}")


def _table(judged: Sequence[Judgement]) -> str:
    titles = ("#", "claim", "stated", "verdict", "because")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    body = "".join(
        f'<tr><th scope="row"><a href="#claim-{j.claim.number}">{j.claim.number}</a></th>'
        + tag("td", escape(j.claim.statement))
        + tag("td", escape(j.claim.stated or "no figure"))
        + tag("td", _verdict(j.verdict, j.shown))
        + tag("td", escape(j.because), class_="w")
        + "</tr>"
        for j in judged
    )
    table = f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(table, "Claims")


def _details(judgement: Judgement) -> str:
    claim = judgement.claim
    summary = f"{claim.number}. {escape(claim.statement)}: {_verdict(judgement.verdict)}"
    tests = listed(claim.experiments)
    return tag(
        "details",
        tag("summary", summary)
        # A browser opens what is closed around the target of a link.
        + tag("div", "".join(map(_part, judgement.parts)), id=f"claim-{claim.number}")
        + tag("p", "Tested by")
        + tests,
        class_="claim",
    )


def _part(part: Part) -> str:
    text = tag(
        "p", f"<strong>{escape(part.said)}</strong>: {_verdict(part.verdict)}: {escape(part.why)}"
    )
    first, more = part.shown
    items = "".join(map(_evidence, first)) + (tag("li", f"and {more} more") if more else "")
    text += tag("ul", items) if items else ""
    return text + (
        tag("p", escape(f"To test it: {part.needs}"), class_="note") if part.needs else ""
    )


def _evidence(evidence: Evidence) -> str:
    source = f" ({escape(evidence.source)})" if evidence.source else ""
    kind = tag("span", escape(evidence.kind), class_=f"kind k-{evidence.kind}")
    return tag("li", f"{kind} {escape(evidence.text)}{source}")
