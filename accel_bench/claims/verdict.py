"""What a claim is, what speaks for or against it, and what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

CONFIRMED = "confirmed"
CONTRADICTED = "contradicted"
DEPENDS = "depends"
NOT_TESTABLE = "not testable here"
VERDICTS = (CONFIRMED, CONTRADICTED, DEPENDS, NOT_TESTABLE)

MEASURED = "measured"  # timed, or counted, on a device that ran it
COMPILED = "compiled"  # read from a vendor's compiler's program; nothing was run
PUBLISHED = "published"  # said by a vendor or a paper
ARITHMETIC = "arithmetic"  # follows from what is stated
KINDS = (MEASURED, COMPILED, PUBLISHED, ARITHMETIC)


@dataclass(frozen=True)
class Evidence:
    """One sentence that speaks for or against a claim.

    Attributes:
      kind: one of `KINDS`; never two of them in one sentence.
      text: the sentence, with its figures.
      source: letters of the records it rests on, or where it is published; empty for arithmetic.
    """

    kind: str
    text: str
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} is none of {', '.join(KINDS)}")
        if self.kind != ARITHMETIC and not self.source:
            raise ValueError(f"what is {self.kind} needs its source: {self.text}")


@dataclass(frozen=True)
class Figure:
    """What was found in the place of a stated figure; `stated` is None where there is none."""

    found: float
    unit: str
    stated: float | None = None


# Sentences of a part that a person is shown; a file for programs has all.
MAX_SHOWN = 12


@dataclass(frozen=True)
class Part:
    """One thing that a claim says, and whether it holds.

    Attributes:
      said: the thing, in a few words.
      verdict: one of `VERDICTS`.
      why: a sentence that leads from the evidence to the verdict.
      evidence: most telling first.
      needs: what would test it, hardware and command; required of what is not testable here.
      figure: the figure that the verdict is of, where there is one.
    """

    said: str
    verdict: str
    why: str
    evidence: tuple[Evidence, ...] = ()
    needs: str = ""
    figure: Figure | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict {self.verdict!r} is none of {', '.join(VERDICTS)}")
        if self.verdict == NOT_TESTABLE and not self.needs:
            raise ValueError(f"{self.said}: not testable here, but where?")

    def with_more(self, *evidence: Evidence) -> Part:
        """The part with more evidence behind what it has."""
        return dataclasses.replace(self, evidence=(*self.evidence, *evidence))

    @property
    def shown(self) -> tuple[Sequence[Evidence], int]:
        """The evidence to show, and how much more there is."""
        return self.evidence[:MAX_SHOWN], max(0, len(self.evidence) - MAX_SHOWN)


@dataclass(frozen=True)
class Claim:
    """A statement about GPUs or TPUs.

    Attributes:
      number: from 1.
      statement: what is claimed.
      stated: the figures given; empty where there are none.
      experiments: commands that test it.
    """

    number: int
    statement: str
    stated: str
    experiments: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """A claim and what its parts come to."""

    claim: Claim
    parts: Sequence[Part]

    @property
    def verdict(self) -> str:
        """The verdict on the whole claim, see `combine`."""
        return combine([part.verdict for part in self.parts])

    @property
    def shown(self) -> str:
        """The verdict, and of how many parts it is where others end otherwise."""
        count = sum(part.verdict == self.verdict for part in self.parts)
        if count == len(self.parts) or not count:
            return self.verdict
        return f"{self.verdict} ({count} of {len(self.parts)})"

    @property
    def because(self) -> str:
        """Why, of the parts that decide: those whose verdict is that of the whole, else all."""
        deciding = [part for part in self.parts if part.verdict == self.verdict] or self.parts
        return "; ".join(f"{part.said}: {part.why}" for part in deciding)


def combine(verdicts: Sequence[str]) -> str:
    """The verdict on a claim of several parts.

    Contradicted where a part is: a claim with a false figure is false as it stands. Else confirmed,
    or not testable, where all parts are; and else it depends.
    """
    if CONTRADICTED in verdicts:
        return CONTRADICTED
    return verdicts[0] if len(set(verdicts)) == 1 else DEPENDS
