"""Asynchronous work in pieces: what ends what was started, also by fusions.

A pair is `x-start` and `x-done`. A TPU has a second form for collectives: a fusion that holds a
call of AsyncCollectiveStart, any number that carry the collective on beside their own work, and one
that holds a call of AsyncCollectiveDone. Each repeats the collective's own instruction, which is
why those must be counted once for all.
"""

from __future__ import annotations

import re

from accel_bench.hlo.kinds import call_target, collective_kind
from accel_bench.hlo.text import Computation, Instruction, Module


def find_done(computation: Computation, start: Instruction) -> Instruction | None:
    """The `x-done` of an `x-start`, also behind `x-update`s."""
    name = start.name
    for _ in range(64):
        users = computation.users.get(name, [])
        ends = [user for user in users if user.opcode.endswith(("-done", "-update"))]
        if not ends or ends[0].opcode.endswith("-done"):
            return ends[0] if ends else None
        name = ends[0].name
    return None


def find_host(module: Module, computation: Computation) -> tuple[Computation, Instruction] | None:
    """The fusion or asynchronous start whose inside a computation is, and where that stands.

    Of fusions inside fusions the outermost.
    """
    found = None
    for _ in range(8):
        callers = module.callers.get(computation.name, [])
        if len(callers) != 1 or not (
            callers[0][1].opcode == "fusion" or callers[0][1].opcode.endswith("-start")
        ):
            break
        found = callers[0]
        if found[1].opcode.endswith("-start"):
            break
        computation = found[0]
    return found


def chain_of(computation: Computation) -> str | None:
    """Identity of the TPU's asynchronous collective of which a fused computation is a part.

    The same for all parts of one; None for a computation that is no part of any.
    """
    for instruction in computation.instructions.values():
        if collective_kind(instruction):
            chain = re.search(r'chain_id="([^"]*)"', instruction.attributes)
            if chain:
                return f"{instruction.attribute('channel_id')} {chain[1]}"
    return None


def holds_call(computation: Computation | None, called: str) -> bool:
    """Whether a computation holds a custom call of the target `called`."""
    return computation is not None and any(
        call_target(i) == called for i in computation.instructions.values()
    )


def continues(computation: Computation) -> bool:
    """Whether a fused computation only carries on a collective that was started before."""
    return chain_of(computation) is not None and not holds_call(computation, "AsyncCollectiveStart")


def find_end(module: Module, place: Computation, start: Instruction) -> Instruction | None:
    """The end of what `start` starts; None where it is done when it returns."""
    if start.opcode.endswith("-start"):
        return None if '"is_sync":true' in start.attributes else find_done(place, start)
    fused = module.fused(start)
    if fused is None or not holds_call(fused, "AsyncCollectiveStart"):
        return None
    chain = chain_of(fused)
    for other in place.instructions.values():
        inner = module.fused(other) if other.opcode == "fusion" else None
        if inner and chain_of(inner) == chain and holds_call(inner, "AsyncCollectiveDone"):
            return other
    return None
