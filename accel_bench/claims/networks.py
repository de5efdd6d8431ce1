"""Claims on data parallelism over a slow network, and on what relieves it."""

from __future__ import annotations

from accel_bench import parallel, units
from accel_bench.claims import criteria
from accel_bench.claims.rows import Row, Rows
from accel_bench.claims.verdict import (
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    NOT_TESTABLE,
    Evidence,
    Figure,
    Part,
)
from accel_bench.errors import RequestError
from accel_bench.netns import parse_rate
from accel_bench.record import Record

NODES = 4
SHORT = (
    "on Linux as root: python main.py run --config=configs/network_short.py --device=cpu; or on "
    "real hosts (docs/clusters.md)"
)


def _link(record: Record) -> float:
    """Bit/s of a row's network link; infinite without a limit."""
    try:
        return parse_rate(str(record.params["link"])) or float("inf")
    except RequestError:  # a later version's
        return float("inf")


def _steps(rows: Rows) -> list[Row]:
    """Train steps over links of a set speed, of four nodes where there are any."""
    found = [
        row
        for row in rows.find("model", phase="train_step")
        if row.record.params.get("link") and row.seconds
    ]
    four = [row for row in found if row.record.params.get("processes") == NODES]
    return four or found


def waiting(rows: Rows) -> list[Part]:
    """Claim 13."""
    said = "4 nodes wait for gradients on a slow network"
    plain = [
        row for row in _steps(rows) if parallel.is_plain(row.record) and parallel.parts(row.record)
    ]
    if not plain:
        return [
            Part(
                said,
                NOT_TESTABLE,
                "no rows over links of a set speed that are certain enough",
                (),
                SHORT,
            )
        ]
    shares: dict[str, float] = {}
    evidence = []
    for row in sorted(plain, key=lambda row: _link(row.record)):
        parts = parallel.parts(row.record)
        assert parts
        link = str(row.record.params["link"])
        shares[link] = parts.communication
        evidence.append(
            row.evidence(
                f"{row.where}, {row.record.params.get('processes')} processes at {link}: "
                f"{units.seconds(parts.step)} a step, {units.seconds(parts.without)} without "
                f"exchange: {units.percent(parts.communication)} of it is exchange."
            )
        )
    slow, fast = next(iter(shares)), list(shares)[-1]
    verdict = CONFIRMED if shares[slow] >= criteria.MOST else DEPENDS
    if shares[slow] < criteria.HARDLY:
        verdict = CONTRADICTED
    why = f"{units.percent(shares[slow])} of a step is exchange at {slow}"
    if fast != slow:
        why += f", {units.percent(shares[fast])} at {fast}"
    figure = Figure(shares[slow], "of a step")
    return [Part(said, verdict, why, tuple(evidence), figure=figure)]


def relief(rows: Rows) -> list[Part]:
    """Claim 14."""
    steps = _steps(rows)
    found = parallel.reliefs([row.record for row in steps])
    slowest = min(found, key=lambda relief: _link(relief.plain), default=None)
    compressed: dict[str, float] = {}
    seldom: dict[str, float] = {}
    letters = {id(row.record): row for row in steps}
    if slowest:
        for name, speedup in slowest.speedup.items():
            (seldom if "," in name else compressed)[name] = speedup

    def evidence(gains: dict[str, float]) -> tuple[Evidence, ...]:
        assert slowest
        return tuple(
            letters[id(slowest.others[name])].evidence(
                f"At {slowest.plain.params['link']}: {name} trains "
                f"{units.digits(gain, 2)} times as many tokens a second as fp32 on every step"
                f"{_sent(slowest.others[name])}."
            )
            for name, gain in gains.items()
        )

    learnt = tuple(_learnt(rows))
    if compressed:
        best = max(compressed, key=compressed.__getitem__)
        gain = compressed[best]
        verdict = CONFIRMED if gain >= criteria.GAIN else CONTRADICTED
        why = f"{best} is {units.digits(gain, 2)} times as fast"
        shown = (*evidence(compressed), *learnt)
        first = Part("compression", verdict, why, shown, figure=Figure(gain, "times"))
    else:
        first = Part("compression", NOT_TESTABLE, "no such rows", learnt, SHORT)
    needs = (
        "a parameter server, which this suite does not have; the nearest it has are steps that "
        "exchange seldom: " + SHORT
    )
    if not seldom:
        return [first, Part("asynchronous updates", NOT_TESTABLE, "no such rows", (), needs)]
    best = max(seldom, key=seldom.__getitem__)
    why = (
        f"{best} is {units.digits(seldom[best], 2)} times as fast; that exchanges seldom and still "
        "in step: truly asynchronous updates are not in this suite"
    )
    return [first, Part("asynchronous updates", DEPENDS, why, evidence(seldom), needs)]


def _sent(record: Record) -> str:
    what = record.facts.get("data_parallel") or {}
    if not what.get("sent_bytes") or not what.get("plain_bytes"):
        return ""
    return f", sending {units.percent(what['sent_bytes'] / what['plain_bytes'])} of its bytes"


def _learnt(rows: Rows) -> list[Evidence]:
    """What relief costs in loss, where trainings tell."""
    trainings = rows.find("training")
    letters = {id(row.record): row for row in trainings}
    said = []
    for found in parallel.learnt([row.record for row in trainings]):
        losses = ", ".join(f"{k} {units.digits(v)}" for k, v in found.after_tokens.items())
        row = letters[id(found.plain)]
        said.append(row.evidence(f"{row.where}: loss after as much data: {losses}."))
    return said
