"""What kind of instruction it is: bookkeeping or work, a custom call, a collective."""

from __future__ import annotations

from accel_bench.hlo.text import Instruction

# Opcodes that move and compute nothing themselves; what they call may.
_NO_WORK = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call"),
    *("conditional", "partition-id", "replica-id", "after-all", "add-dependency", "opt-barrier"),
    *("async-start", "call-start", "domain", "get-dimension-size"),
}
# Custom calls that only name or reserve memory.
NO_WORK_TARGETS = {
    *("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound", "Sharding"),
    *("AsyncCollectiveStart", "AsyncCollectiveDone"),
}
_COLLECTIVES = {
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
}
# What a device computes with; a collective with one of them in its middle is hidden behind it.
COMPUTE = {
    *("fusion", "dot", "convolution", "custom-call", "while", "call", "conditional"),
    *("reduce", "reduce-window", "select-and-scatter", "sort", "scatter", "gather"),
}
# Opcodes that read of their first operand only what they give.
SLICES = ("slice", "dynamic-slice", "gather")


def call_target(instruction: Instruction) -> str:
    """What a custom call calls, as `__cublas$gemm`; empty for other instructions."""
    if instruction.opcode != "custom-call":
        return ""
    return (instruction.attribute("custom_call_target") or "?").strip('"')


def works(instruction: Instruction) -> bool:
    """Whether it moves or computes anything itself."""
    if instruction.opcode in _NO_WORK or instruction.opcode.endswith(("-done", "-update")):
        return False
    return call_target(instruction) not in NO_WORK_TARGETS


def collective_kind(instruction: Instruction) -> str | None:
    """A collective's opcode, as `all-gather`, where it starts; None for any other instruction."""
    kind = instruction.opcode.removesuffix("-start")
    return kind if kind in _COLLECTIVES else None
