"""Tables of what was compiled and not run. Every time in them is an estimate, and says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from accel_bench import compiled_findings, derive, units
from accel_bench.derive import Ceilings
from accel_bench.record import Record
from accel_bench.tables import Column, literal, note, precision, status, table


def _facts(record: Record, group: str) -> Mapping:
    return record.facts.get(group) or {}


def _memory(record: Record, best: Mapping[str, Ceilings]) -> str:
    sizes = _facts(record, "memory")
    needed, usable = sizes.get("needed"), sizes.get("usable")
    if needed is None or usable is None:
        return ""
    return f"{units.digits(needed / 2**30)} of {units.digits(usable / 2**30)} GiB"


def _work(record: Record, best: Mapping[str, Ceilings]) -> str:
    ratio = _facts(record, "program").get("flops_vs_work")
    return f"{units.digits(ratio)}x" if ratio is not None else ""


def _part(name: str):
    def cell(record: Record, best: Mapping[str, Ceilings]) -> str:
        figures = _facts(record, "estimate")
        if figures and f"{name}_s" in figures and figures[f"{name}_s"] is None:
            return "?"
        seconds = figures.get(f"{name}_s")
        return units.seconds(seconds) if seconds else ""

    return cell


def _binds(record: Record, best: Mapping[str, Ceilings]) -> str:
    return _facts(record, "estimate").get("binds") or ""


def _estimate(record: Record, best: Mapping[str, Ceilings]) -> str:
    found = derive.estimate(record)
    return f"~{units.seconds(found.seconds)}" if found and found.kind == "estimate" else ""


def _ratio(record: Record, best: Mapping[str, Ceilings]) -> str:
    found, bound = derive.estimate(record), _facts(record, "estimate").get("bound_s")
    if found is None or found.kind != "estimate" or not bound:
        return ""
    return f"{units.digits(found.seconds / bound)}x"


def _kernels(record: Record, best: Mapping[str, Ceilings]) -> str:
    kernels = _facts(record, "code").get("kernels") or {}
    # A TPU program names an emitter for each shape of product; a GPU's names a library.
    return ", ".join(kernels) if record.target.get("platform") == "gpu" else ""


COLUMNS = (
    Column("target", lambda record, best: derive.target_name(record), right=False),
    Column("case", lambda record, best: derive.label(record), right=False),
    Column("precision", precision, right=False),
    Column("memory", _memory),
    Column("products", _work),
    Column("compute", _part("compute")),
    Column("traffic", _part("memory")),
    Column("network", _part("network")),
    Column("binds", _binds, right=False),
    Column("at least", _part("bound")),
    Column("estimate", _estimate),
    Column("ratio", _ratio),
    Column("kernels", _kernels, right=False),
    Column("status", status, right=False),
    Column("note", note, right=False),
)
LEGEND = (
    "memory: needed of usable on a device; products: in the program over what is needed; compute, "
    "traffic, network: seconds at the published rates, ? where not known; at least: a bound; "
    "estimate: the vendor's compiler's, and the network that nothing hides; ratio: to the bound"
)
DROPPED_FIRST = ("note", "kernels", "ratio", "traffic", "network", "compute", "products", "binds")


def print_compiled(records: Sequence[Record], console: Console) -> None:
    """Prints the compiled records of a run, and those cases side by side that were measured too."""
    compiled = [r for r in records if derive.is_compiled(r)]
    console.print(literal(LEGEND, "dim"))
    for name, group in derive.by_workload(compiled).items():
        title = literal(f"{name} (compiled, not run: times are estimates, per device)", "bold")
        console.print(table(title, COLUMNS, DROPPED_FIRST, group, {}, console))
        for line in compiled_findings.of_workload(group):
            console.print(literal(f"  {line}"), soft_wrap=True)
    for name, group in derive.by_workload(records).items():
        beside = _side_by_side(name, group)
        if beside:
            console.print(beside)


def _side_by_side(name: str, records: Sequence[Record]) -> Table | None:
    """A row for each case that was measured and compiled, a column for each accelerator."""
    rows: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        where = derive.target_name(record) or derive.machine(record)
        key = (derive.label(record), precision(record, {}))
        if record.implementation == "xla":
            rows.setdefault(key, {})[where] = record
    rows = {
        key: row
        for key, row in rows.items()
        if len({derive.is_compiled(r) for r in row.values() if r.status == "ok"}) > 1
    }
    if not rows:
        return None
    places = list(dict.fromkeys(place for row in rows.values() for place in row))
    out = Table(
        title=literal(f"{name} (one step; ~ the compiler's estimate, >= a bound)", "bold"),
        title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    out.add_column("case", overflow="fold")
    if any(key[1] for key in rows):
        out.add_column("precision", no_wrap=True)
    for place in places:
        out.add_column(literal(place), justify="right", overflow="fold")
    for (label, named), row in rows.items():
        cells = [label, *([named] if len(out.columns) > len(places) + 1 else [])]
        cells += [one_time(row[place]) if place in row else "-" for place in places]
        out.add_row(*(literal(cell) for cell in cells))
    return out


def one_time(record: Record) -> str:
    """A step's time with the mark of its origin: `4.8 ms`, `~20 us`, `>= 2.2 us`."""
    step, estimate = derive.time(record), derive.estimate(record)
    if step:
        return units.seconds(step.value)
    if estimate:
        mark = "~" if estimate.kind == "estimate" else ">= "
        return f"{mark}{units.seconds(estimate.seconds)}"
    return "not known" if record.status == "ok" else record.status
