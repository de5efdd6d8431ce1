"""Compiles one case for an accelerator that is only described, and says what came out.

The worker's part, as `accel_bench.execute` is for measuring; both take the same `Workload`, of
which only the function and its abstract inputs are looked at here. Nothing is allocated or run.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from accel_bench import checks, network, program, roofline
from accel_bench.cases import Case
from accel_bench.chips import CAPABILITIES, Chip
from accel_bench.execute import Outcome, classify
from accel_bench.hlo import analysis
from accel_bench.measure import Measurement
from accel_bench.network import Span
from accel_bench.target import Target, is_ring
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import (
    Device,
    SkippedCase,
    UnsupportedCase,
    Workload,
    make_mesh,
    sharding,
)

# Of a GPU's memory jax takes three quarters unless it is told otherwise (jax documentation, GPU
# memory allocation).
_GPU_DEFAULT_SHARE = 0.75
_FEWER = 0.98
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class TooBig(Exception):
    """The program does not fit the chip's memory; the text says by how much."""


@dataclass
class Session:
    """A compiler that was made ready for a target.

    Attributes:
      spec: the target.
      devices: what jax takes for its devices.
      axes: the mesh over them.
      usable_bytes: memory of one device that a program can have, and `usable_from`, who says so.
      refusal: why the compiler takes no program at all for this chip; None where it does.
    """

    spec: Target
    devices: Sequence[Device]
    axes: Mapping[str, int]
    usable_bytes: int | None
    usable_from: str
    refusal: str | None = None

    @property
    def target(self) -> dict[str, Any]:
        """The record's `target`."""
        return self.spec.record(self.devices[0].device_kind)


def start(spec: Target, axes: Mapping[str, int]) -> Session:
    """Loads the compiler for a target and asks it what it takes.

    Args:
      spec: the target.
      axes: mesh axes and sizes; empty for one device.

    Raises:
      Exception: whatever the compiler says when it cannot be loaded.
    """
    devices = describe(spec)
    if spec.platform == "gpu":
        usable, by = spec.chip.memory_bytes, "what the driver reports (chip table)"
    else:
        usable, by = _usable_tpu_memory(devices), "the compiler"
    return Session(spec, devices, axes, usable, by, _refusal(spec, devices))


def describe(spec: Target) -> Sequence[Device]:
    """The devices of a target, as jax takes them."""
    if spec.platform == "gpu":
        hosts, count = spec.shape
        described = topologies.get_topology_desc(
            "", "cuda", target_config=gpu_config(spec.chip), topology=f"1x{hosts}x{count}"
        )
        return described.devices
    # A host has 2 x 2 chips, but for the machine that has one.
    bounds = (1, 1, 1) if spec.num_chips == spec.slices else (2, 2, 1)
    options: dict[str, Any] = {"chips_per_host_bounds": bounds}
    if spec.chip.megacore:
        options["chip_config_name"] = "megacore"
    if spec.slices > 1:
        options["num_slices"] = spec.slices
    shape = "x".join(map(str, spec.shape))
    return topologies.get_topology_desc(f"{spec.name}:{shape}", "tpu", **options).devices


def gpu_config(chip: Chip) -> str:
    """A GPU as the compiler takes it: a `GpuTargetConfigProto` in text form.

    The fields and their meaning: openxla/xla, xla/stream_executor/device_description.proto.
    """
    assert chip.capability
    major, minor = chip.capability.split(".")
    common = CAPABILITIES[chip.capability]
    numbers = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "threads_per_core_limit": common.threads,
        "shared_memory_per_block": 49152,
        "shared_memory_per_block_optin": common.shared_optin_bytes,
        "shared_memory_per_core": common.shared_bytes,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "core_count": chip.cores,
        "fpus_per_core": common.fp32_units,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "thread_dim_limit_x": 1024,
        "thread_dim_limit_y": 1024,
        "thread_dim_limit_z": 64,
        "memory_bandwidth": int(chip.bandwidth_gbs * 1e9),
        "l2_cache_size": chip.cache_bytes,
        "clock_rate_ghz": chip.clock_ghz,
        "device_memory_size": chip.memory_bytes,
    }
    fields = " ".join(f"{name}: {value}" for name, value in numbers.items())
    name = chip.device_kinds[0]
    return (
        f"gpu_device_info {{ {fields} "
        f"cuda_compute_capability {{ major: {major} minor: {minor} }} "
        f'device_vendor: "NVIDIA Corporation" name: "{name}" }} '
        f'platform_name: "CUDA" dnn_version_info {{}} device_description_str: "{name}"'
    )


def _one_array(device: Device, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding(make_mesh([device], {})))


def _usable_tpu_memory(devices: Sequence[Device]) -> int | None:
    """Bytes of memory that the compiler gives to programs, from its refusal of one too big."""
    try:
        jax.jit(lambda x: x + 1).lower(_one_array(devices[0], (1 << 20, 1 << 20))).compile()
    except jax.errors.JaxRuntimeError as error:
        return parse_too_big(str(error))[1]
    return None


def _refusal(spec: Target, devices: Sequence[Device]) -> str | None:
    """What the compiler says to the smallest program, where it refuses that."""
    try:
        jax.jit(lambda x: x + 1).lower(_one_array(devices[0], (8,))).compile()
    except jax.errors.JaxRuntimeError as error:
        said = re.sub(r"/\S*/", "", str(error).strip().splitlines()[0]).rstrip(".")
        if spec.platform != "gpu":
            return f"the compiler takes no program for this chip ({said})"
        return (
            f"the compiler takes no program for compute capability {spec.chip.capability} ({said})"
            "; CUDA 13 compiles for 7.5 and newer: CUDA 12 needs pip install jax-cuda12-plugin"
            f"=={jax.__version__} jax-cuda12-pjrt=={jax.__version__} nvidia-cuda-nvcc-cu12"
        )
    return None


def parse_too_big(message: str) -> tuple[int | None, int | None]:
    """Bytes of main memory needed and there, by a TPU compiler's message; None without them."""
    size = r"([\d.]+)([KMGT]?)i?B?"
    forms = (rf"\({size}\) exceeds available HBM \({size}\)", rf"Used {size} of {size} hbm")
    for form in forms:
        match = re.search(form, message)
        if match:
            needed, unit, there, other = match.groups()
            return int(float(needed) * _BINARY[unit]), int(float(there) * _BINARY[other])
    return None, None


def execute(
    session: Session,
    case: Case,
    hlo_file: Path | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Outcome:
    """Builds, compiles and reads one case; whatever goes wrong becomes its status.

    Args:
      session: the compiler.
      case: what to compile.
      hlo_file: where to leave the optimised program's text; None leaves none.
      on_stage: told what is going on.
    """
    outcome = Outcome("ok", None, Measurement(), session.target)
    if session.refusal:
        outcome.status, outcome.reason = "unsupported", session.refusal
        return outcome
    try:
        on_stage("building")
        _compile(session, case, hlo_file, on_stage, outcome.measurement)
    except UnsupportedCase as error:
        outcome.status, outcome.reason = "unsupported", str(error)
    except SkippedCase as error:
        outcome.status, outcome.reason = "skipped", str(error)
    except TooBig as error:
        outcome.status, outcome.reason = "oom_compile", str(error)
    except Exception as error:  # one case costs its own row only
        outcome.status, outcome.reason = classify(error)
        if outcome.status == "unsupported":
            outcome.reason = f"the compiler: {outcome.reason}"
        traceback.print_exc()  # goes to the worker's log
    return outcome


def _compile(
    session: Session,
    case: Case,
    hlo_file: Path | None,
    on_stage: Callable[[str], None],
    result: Measurement,
) -> None:
    mesh = make_mesh(session.devices, session.axes)
    workload: Workload = WORKLOADS[case.workload].builder()(
        case.typed_params(), case.precision, mesh
    )
    facts = result.facts
    facts |= {"work": dict(workload.work), **workload.facts, "steps_per_call": workload.inner}
    for name in ("error_of", "unchecked", "inputs"):  # of a measurement
        facts.pop(name, None)
    on_stage("lowering")
    jitted = jax.jit(workload.fn, donate_argnums=workload.donate, keep_unused=True)
    started = time.perf_counter()
    lowered = jitted.lower(*workload.inputs)
    facts["lower_s"] = time.perf_counter() - started
    on_stage("compiling")
    started = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        needed, there = parse_too_big(str(error))
        if needed is None:  # something else than the main memory ran out
            raise RuntimeError(" ".join(str(error).split())[:500]) from error
        usable = there or session.usable_bytes
        facts["memory"] = _memory(session, {"needed": needed}, usable)
        raise TooBig(_too_big(needed, usable, str(error))) from error
    finally:
        result.compile_s = time.perf_counter() - started
    on_stage("reading the program")
    text = compiled.as_text() or ""
    if hlo_file:
        hlo_file.parent.mkdir(parents=True, exist_ok=True)
        hlo_file.write_text(text)
        facts["hlo_file"] = hlo_file.name
    read = analysis.analyse(text, session.axes)
    if read["collectives"] is None:
        raise RuntimeError(f"the compiler's program cannot be read: {'; '.join(read['unknown'])}")
    sizes: dict[str, Any] = program.memory(compiled)
    # The sum counts fragments, the peak what lives inside a kernel.
    needed = max(filter(None, (program.needed_bytes(sizes), sizes["peak"])), default=None)
    facts["memory"] = _memory(session, {**sizes, "needed": needed}, session.usable_bytes)
    facts |= _per_step(read, workload.inner)
    facts["dot_operands"] = sorted(program.dot_operand_types(text))
    _compare_work(facts["program"], session.spec.num_devices, workload.work.get("flops"))
    facts["estimate"] = _estimate(session, case, mesh, facts)
    facts["flags"] = _flags(session, case, facts)
    if facts["memory"]["fits"] is False:
        raise TooBig(_too_big(needed, session.usable_bytes, ""))


def _flags(session: Session, case: Case, facts: Mapping[str, Any]) -> list[str]:
    needed, usable = facts["memory"]["needed"], session.usable_bytes
    on_gpu = session.spec.platform == "gpu"
    tight = needed is not None and usable is not None and needed > _GPU_DEFAULT_SHARE * usable
    present = {
        "emulated": checks.emulated(case, session.target, facts),
        "cache-resident": on_gpu and checks.cache_resident(session.target, facts),
        "not-autotuned": on_gpu,
        "over-default-share": on_gpu and tight,
    }
    return [name for name, there in present.items() if there]


def _memory(session: Session, sizes: Mapping[str, Any], usable: int | None) -> dict[str, Any]:
    needed = sizes.get("needed")
    headroom = None if needed is None or usable is None else usable - needed
    return {
        **sizes,
        "usable": usable,
        "usable_from": session.usable_from,
        "fits": None if headroom is None else headroom >= 0,
        "headroom": headroom,
    }


def _too_big(needed: int | None, usable: int | None, message: str) -> str:
    if needed is None or usable is None:
        return message.strip().splitlines()[0]
    return (
        f"needs {needed / 2**30:.4g} GiB on each device, where {usable / 2**30:.4g} GiB can be "
        f"used: {(needed - usable) / 2**30:.3g} GiB too much"
    )


def _compare_work(program_facts: dict[str, Any], devices: int, work: float | None) -> None:
    """Sets `flops_vs_work`: products in all devices' programs over those that are needed."""
    flops = program_facts["flops"]
    ratio = flops * devices / work if flops is not None and work else None
    if ratio is not None and ratio < _FEWER:
        # Products of a vector are compiled as multiplications and sums.
        program_facts["unknown"].append(
            f"flops: {ratio:.3g} of what is needed are products; the rest is other arithmetic"
        )
        ratio = None
    program_facts["flops_vs_work"] = ratio


def _per_step(read: dict[str, Any], inner: int) -> dict[str, Any]:
    """What `analysis` found in a call, per step, as fields of the record's facts."""

    def each(value: float | None) -> float | None:
        return None if value is None else value / inner

    collectives = [
        {**entry, **{name: each(entry[name]) for name in ("calls", "bytes", "wire_bytes")}}
        for entry in read["collectives"]
    ]
    by_type = read["flops_by_type"]
    return {
        "program": {
            "flops": each(read["flops"]),
            "flops_by_type": by_type and {name: each(n) for name, n in by_type.items()},
            "products": read["products"],
            "bytes": each(read["bytes"]),
            "cycles": each(read["cycles"]),
            "cycles_without": read["cycles_without"],
            "unknown": read["unknown"],
        },
        "collectives": collectives,
        "code": read["code"],
    }


def _estimate(session: Session, case: Case, mesh: Mesh, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The compiler's own time, where it gives cycles, and the roofline; seconds per step."""
    program_facts = facts["program"]
    spans = {
        tuple(entry["axes"]): span(mesh, entry["axes"], session.spec)
        for entry in facts["collectives"]
        if entry["axes"]
    }
    chip = session.spec.chip
    busy = network.busy(facts["collectives"], spans, chip)
    found = roofline.bound(session.spec, case.precision, program_facts, facts["memory"], busy)
    cycles, clock = program_facts["cycles"], chip.clock_ghz
    if cycles is None or clock is None or session.spec.platform != "tpu":
        return {"compiler_s": None, "exposed_s": None, "clock_ghz": None, **found}
    # The compiler counts no cycles for collectives: those that nothing hides come on top.
    exposed = [entry for entry in facts["collectives"] if not entry["overlapped"]]
    return {
        "compiler_s": cycles / (clock * 1e9),
        "exposed_s": network.busy(exposed, spans, chip).seconds,
        "clock_ghz": clock,
        **found,
    }


def span(mesh: Mesh, axes: Sequence[str], spec: Target) -> Span:
    """Where the devices lie that differ from the first one along these axes only."""
    index = tuple(slice(None) if name in axes else 0 for name in mesh.axis_names)
    group = list(np.ravel(mesh.devices[index]))
    torus = group[0].platform == "tpu"
    coords = [tuple(device.coords) if torus else () for device in group]
    dimensions = [d for d in range(len(coords[0])) if len({c[d] for c in coords}) > 1]
    return Span(
        {d: 2 if is_ring(spec.chip, spec.shape[d]) else 1 for d in dimensions},
        len(coords),
        hosts=len({device.process_index for device in group}),
        slices=len({getattr(device, "slice_index", 0) for device in group}),
    )
