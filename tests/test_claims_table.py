"""The claims, their judges, and how verdicts combine."""

import re
from pathlib import Path

import pytest

from accel_bench import claims, config_files
from accel_bench.claims import criteria
from accel_bench.claims.table import CLAIMS, JUDGES
from accel_bench.claims.verdict import (
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    MEASURED,
    NOT_TESTABLE,
    Evidence,
    Judgement,
    Part,
    combine,
)
from accel_bench.comparison import Source


def sources(*groups):
    """A source for each group of records."""
    return [
        Source(letter, Path("/runs") / letter, "", list(records), [], None)
        for letter, records in zip("ABCDEFG", groups, strict=False)
    ]


def judged(number, *groups) -> Judgement:
    return claims.judge(sources(*groups))[number - 1]


def part(judgement, start) -> Part:
    (found,) = [each for each in judgement.parts if each.said.startswith(start)]
    return found


def said(judgement_or_part, kind=None) -> str:
    parts = getattr(judgement_or_part, "parts", None) or [judgement_or_part]
    return "\n".join(e.text for p in parts for e in p.evidence if kind in (None, e.kind))


def test_there_are_twenty_claims_and_a_judge_for_each():
    assert [claim.number for claim in CLAIMS] == list(range(1, 21))
    assert sorted(JUDGES) == list(range(1, 21))


def test_every_claim_names_an_experiment_that_exists():
    for claim in CLAIMS:
        assert claim.experiments, claim.number
        for command in claim.experiments:
            if command == "python main.py list chips":
                continue
            name = re.search(r"--config=configs/(\w+)\.py", command)
            assert name, command
            assert name[1] in config_files.known()


def test_without_records_nothing_is_measured_or_compiled_and_all_is_judged():
    for judgement in claims.judge([]):
        assert judgement.parts
        for each in judgement.parts:
            assert {e.kind for e in each.evidence} <= {"published", "arithmetic"}


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ([CONFIRMED, CONFIRMED], CONFIRMED),
        ([CONFIRMED, CONTRADICTED, NOT_TESTABLE], CONTRADICTED),
        ([CONFIRMED, NOT_TESTABLE], DEPENDS),
        ([CONFIRMED, DEPENDS], DEPENDS),
        ([NOT_TESTABLE, NOT_TESTABLE], NOT_TESTABLE),
    ],
)
def test_a_claim_is_as_its_parts_are(verdicts, whole):
    assert combine(verdicts) == whole
    parts = [Part("x", verdict, "y", needs="z") for verdict in verdicts]
    judgement = Judgement(CLAIMS[0], parts)
    assert judgement.verdict == whole
    some = verdicts.count(whole) not in (0, len(verdicts))
    assert judgement.shown == (
        f"{whole} ({verdicts.count(whole)} of {len(parts)})" if some else whole
    )


def test_evidence_says_where_it_is_from():
    with pytest.raises(ValueError, match="needs its source"):
        Evidence(MEASURED, "fast")
    with pytest.raises(ValueError, match="is none of measured, compiled"):
        Evidence("guessed", "fast", "A")
    with pytest.raises(ValueError, match="not testable here, but where"):
        Part("x", NOT_TESTABLE, "y")


def test_the_edges_of_near():
    assert criteria.near(25.0, 50.0)
    assert criteria.near(100.0, 50.0)
    assert not criteria.near(24.9, 50.0)
    assert not criteria.near(100.1, 50.0)
