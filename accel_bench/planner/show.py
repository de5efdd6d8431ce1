"""Plans and published trainings as tables, in a terminal and in Markdown; rows are made once."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from accel_bench import chips, derive, markdown, mesh, units
from accel_bench.planner import published
from accel_bench.planner.candidates import Candidate
from accel_bench.planner.forecast import Forecast, Total
from accel_bench.planner.published import Published
from accel_bench.planner.request import Request
from accel_bench.planner.search import Found, Tried
from accel_bench.tables import literal

Rows = list[list[str]]

CANDIDATE_COLUMNS = (
    "mesh", "remat", "sequences", "passes", "formulas", "compiled", "fits", "at least", "estimate",
    "note",
)  # fmt: skip
TOTAL_COLUMNS = ("a batch", "days", "chip-hours", "energy", "money", "of peak", "by")
PUBLISHED_COLUMNS = (
    "training", "of", "chip", "tokens", "chip-hours", "at 100 %", "MFU", "stated", "others' MFU",
    "predicted", "ratio",
)  # fmt: skip
LEGEND = (
    "sequences: of each replica in a pass; formulas, compiled: memory of a device, by formulas and "
    "by the compiler; at least: a bound for a batch; estimate: the compiler's time for it"
)
PUBLISHED_LEGEND = (
    "at 100 %: chip-hours by 6N + 12LHQT FLOPs a token at the chip's peak; MFU: that over the "
    "published chip-hours; stated: what a publication gives, ^ where from a rate that counts "
    "recomputed layers (x 6/8); others' MFU: the range that plan would assume from all other "
    "models' rows; predicted: chip-hours in that range; ratio: predicted over published"
)
# What is true of every plan.
ASSUMED = (
    "FLOPs are 6N + 12LHQT a token; recomputed layers do not count",
    "AdamW; all chips work all the time: no failures, restarts, evaluations, checkpoints, or waits "
    "for data",
    "energy is that of the boards at 100 % of the chip table's power: no hosts, network or cooling",
    "bounds and the compiler's estimates know no latency of the network and take its links as full",
)


def _gib(size: float | None) -> str:
    return f"{units.digits(size / 2**30)} GiB" if size is not None else "?"


def _count(value: float) -> str:
    """A large number as people read it: `1,720,320`, `45.6`."""
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else units.digits(value)


def _span(low: float | None, high: float | None, bound: bool = False) -> str:
    """`>= 12.3`, `12.3` or `12.3 - 45.6`; nothing where it is not known."""
    if low is None:
        return ""
    if high is None:
        return f">= {_count(low)}" if bound else _count(low)
    return _count(low) if low == high else f"{_count(low)} - {_count(high)}"


def _energy(low: float | None, high: float | None, bound: bool) -> str:
    if low is None:
        return ""
    shown = units.quantity(low * 1e6, "Wh")
    if high is None:
        return f">= {shown}" if bound else shown
    return shown if low == high else f"{shown} - {units.quantity(high * 1e6, 'Wh')}"


def _share(low: float | None, high: float | None) -> str:
    if high is None:
        return ""
    if low is None:  # of a bound; one that lies above the peak says nothing
        return f"<= {units.percent(high)}" if high <= 1 else ""
    return units.percent(low) if low == high else f"{units.percent(low)} - {units.percent(high)}"


def candidate_rows(found: Found) -> Rows:
    """What was compiled, then what was not and why."""
    rows = [_tried_row(tried, tried is found.best) for tried in found.tried]
    rows += [_formula_row(candidate, "not compiled") for candidate in not_come_to(found)]
    for candidate in found.enumeration.hopeless:
        rows.append(_formula_row(candidate, "not compiled: far too large by formulas"))
    return rows


def not_come_to(found: Found) -> list[Candidate]:
    """Of each mesh and remat that the search did not come to, what it would have begun with."""
    come_to = {(tried.candidate.axes, tried.candidate.remat) for tried in found.tried}
    ladders = found.enumeration.ladders
    return [each.rungs[0] for each in ladders if (each.axes, each.remat) not in come_to]


def _place(candidate: Candidate) -> list[str]:
    where = mesh.text(candidate.mesh) or "one device"
    return [where, candidate.remat, str(candidate.micro), str(candidate.passes)]


def _tried_row(tried: Tried, best: bool) -> list[str]:
    record = tried.record
    if tried.fits is None:
        note = f"{record.status}: {record.reason or ''}"
    else:
        said = {
            "the best of these": best,
            "kept from before": bool(record.facts.get("cache")),
            "over-default-share": bool(tried.fits) and "over-default-share" in derive.flags(record),
        }
        note = "; ".join(text for text, true in said.items() if true)
    compiled = f"{_gib(tried.needed)} of {_gib(tried.usable)}" if tried.needed else ""
    return [
        *_place(tried.candidate),
        _gib(tried.candidate.memory.needed),
        compiled,
        {True: "yes", False: "no", None: "?"}[tried.fits],
        f">= {units.seconds(tried.bound_s)}" if tried.bound_s else "",
        f"~{units.seconds(tried.estimate_s)}" if tried.estimate_s else "",
        note,
    ]


def _formula_row(candidate: Candidate, note: str) -> list[str]:
    memory = candidate.memory
    formulas = f"{_gib(memory.needed)} of {_gib(memory.usable)}"
    return [*_place(candidate), formulas, "", "", "", "", note]


def total_rows(forecast: Forecast) -> Rows:
    """The training by each origin of a step's time."""
    return [_total_row(total) for total in forecast.totals]


def _total_row(total: Total) -> list[str]:
    bound = total.origin == "bound"
    mark = {"bound": ">= ", "compiler": "~"}.get(total.origin, "")
    step = f"{mark}{units.seconds(total.step_low_s)}"
    if total.step_high_s and total.step_high_s != total.step_low_s:
        step += f" - {units.seconds(total.step_high_s)}"
    return [
        step,
        _span(total.days_low, total.days_high, bound),
        _span(total.chip_hours_low, total.chip_hours_high, bound),
        _energy(total.mwh_low, total.mwh_high, bound),
        _span(total.money_low, total.money_high, bound),
        _share(total.mfu_low, total.mfu_high),
        f"{total.origin}: {total.says}",
    ]


def request_lines(request: Request) -> list[str]:
    """What is planned, and what was assumed because nobody asked for something else."""
    lines = [
        f"{request.model} on {request.tokens:.4g} tokens: {request.steps:,} steps of "
        f"{request.batch_tokens:,} tokens ({request.sequences:,} sequences of {request.length}), "
        f"{units.quantity(request.flops_of_step(), 'FLOP')} each"
    ]
    if request.defaults:
        lines.append(f"not asked for, so taken: {'; '.join(request.defaults)}")
    return lines


def target_lines(forecast: Forecast) -> list[str]:
    """The sentences under a target's tables."""
    found = forecast.found
    lines = [forecast.verdict]
    if found.refusal:
        lines.append(f"nothing was compiled, all of it is analytic: {found.refusal}")
    elif found.stopped:
        lines.append(f"not everything was compiled: {found.stopped} were spent")
    elif found.tried:
        lines.append(
            "all meshes of the table were compiled but those far too large; there are others"
        )
    if forecast.watts_reason and forecast.totals:
        lines.append(f"no energy: {forecast.watts_reason}")
    lines += [f"left out: {reason}" for reason in found.enumeration.impossible]
    return [*lines, *forecast.assumed]


def range_line(forecast: Forecast) -> str:
    """The range that is left, over all origins but bounds; empty where nothing fits."""
    counted = [t for t in forecast.totals if t.days_high is not None]
    if not counted:
        return ""
    low, high = min(t.days_low for t in counted), max(t.days_high or 0.0 for t in counted)
    hours = [t.chip_hours_low for t in counted] + [t.chip_hours_high or 0.0 for t in counted]
    return (
        f"the range left: {_count(low)} to {_count(high)} days, {_count(min(hours))} to "
        f"{_count(max(hours))} chip-hours"
    )


def print_plan(request: Request, forecasts: Sequence[Forecast], console: Console) -> None:
    """Prints a plan."""
    for line in request_lines(request):
        console.print(literal(line), soft_wrap=True)
    console.print(literal(LEGEND, "dim"), soft_wrap=True)
    for forecast in forecasts:
        target = forecast.found.target
        kind = "compiled" if forecast.compiled else "analytic, not compiled"
        title = f"{target} {forecast.precision} ({kind}; nothing was run)"
        console.print(_table(title, CANDIDATE_COLUMNS, candidate_rows(forecast.found)))
        if forecast.totals:
            console.print(_table("", TOTAL_COLUMNS, total_rows(forecast)))
        for line in filter(None, [*target_lines(forecast), range_line(forecast)]):
            console.print(literal(f"  {line}"), soft_wrap=True)
    for line in ASSUMED:
        console.print(literal(f"assumed: {line}", "dim"), soft_wrap=True)


def _table(title: str, columns: Sequence[str], rows: Rows) -> Table:
    """A table without the columns that are empty in all rows."""
    table = Table(
        title=literal(title, "bold") if title else None, title_justify="left",
        box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    kept = [n for n in range(len(columns)) if any(row[n] for row in rows)]
    for number in kept:
        words = columns[number] in ("mesh", "note", "by", "training", "remat", "of", "chip")
        table.add_column(columns[number], justify="left" if words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(literal(row[number]) for number in kept))
    return table


def published_rows() -> Rows:
    """Every published training beside what the planner says of it."""
    return [_published_row(run) for run in published.RUNS]


def predicted(run: Published) -> tuple[float, float] | None:
    """Chip-hours of a published training by the range of all the others; None without FLOPs."""
    hours = published.hours_at_peak(run)
    share = published.leave_one_out(run)
    return (hours / share.high, hours / share.low) if hours else None


def _published_row(run: Published) -> list[str]:
    share, hours = published.leave_one_out(run), published.hours_at_peak(run)
    implied, found = published.implied(run), predicted(run)
    stated = units.percent(run.stated) if run.stated else ""
    if run.stated_tflops and not run.stated:
        model = run.stated_tflops * 1e12 / published.RECOMPUTED
        stated = f"{units.percent(model / published.peak(run.chip))}^"
    ratio = ""
    if found and run.chip_hours:
        low, high = (units.digits(value / run.chip_hours, 2) for value in found)
        ratio = f"{low} - {high}"
    return [
        run.name,
        run.kind,
        f"{run.chips:,} {run.chip}" if run.chips else run.chip,
        units.quantity(run.tokens, "") if run.tokens else "",
        _count(run.chip_hours) if run.chip_hours else "",
        _count(hours) if hours else "",
        units.percent(implied) if implied else "",
        stated,
        _share(share.low, share.high),
        _span(*found) if found else "",
        ratio,
    ]


def range_lines() -> list[str]:
    """The ranges that plans assume."""
    lines = []
    by_range: dict[str, list[str]] = {}
    for name in chips.CHIPS:
        share = published.efficiency(name)
        said = (
            f"{units.percent(share.low)} ({share.lowest}) to {units.percent(share.high)} "
            f"({share.highest}): {share.among}"
        )
        by_range.setdefault(said, []).append(name)
    for said, names in by_range.items():
        lines.append(f"plan assumes for {', '.join(names)}: {said}")
    return lines


def print_published(console: Console) -> None:
    """Prints the published trainings."""
    console.print(literal(PUBLISHED_LEGEND, "dim"), soft_wrap=True)
    console.print(_table("published trainings", PUBLISHED_COLUMNS, published_rows()))
    for line in range_lines():
        console.print(literal(f"  {line}"), soft_wrap=True)
    for run in published.RUNS:
        note = f" ({run.note})" if run.note else ""
        console.print(literal(f"  {run.name}: {run.source}{note}", "dim"), soft_wrap=True)


def plan_markdown(request: Request, forecasts: Sequence[Forecast]) -> str:
    """A plan as Markdown."""
    lines = [f"- {markdown.cell(line)}" for line in request_lines(request)]
    for forecast in forecasts:
        lines += ["", f"### {markdown.cell(f'{forecast.found.target} {forecast.precision}')}", ""]
        lines += _markdown(CANDIDATE_COLUMNS, candidate_rows(forecast.found))
        if forecast.totals:
            lines += ["", *_markdown(TOTAL_COLUMNS, total_rows(forecast))]
        said = filter(None, [*target_lines(forecast), range_line(forecast)])
        lines += ["", *(f"- {markdown.cell(line)}" for line in said)]
    lines += ["", *(f"- assumed: {markdown.cell(line)}" for line in ASSUMED)]
    return "\n".join(lines) + "\n"


def published_markdown() -> str:
    """The published trainings as Markdown."""
    lines = [
        markdown.cell(PUBLISHED_LEGEND),
        "",
        *_markdown(PUBLISHED_COLUMNS, published_rows()),
        "",
    ]
    lines += [f"- {markdown.cell(line)}" for line in range_lines()]
    lines += [f"- {markdown.cell(f'{run.name}: {run.source}')}" for run in published.RUNS]
    return "\n".join(lines) + "\n"


def _markdown(columns: Sequence[str], rows: Rows) -> list[str]:
    return [*markdown.header(columns), *(markdown.line(row) for row in rows)]
