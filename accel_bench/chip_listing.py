"""The chip table as people read it: in a terminal, as Markdown, and for the report.

Several tables, each narrow enough for 80 columns, so that no figure has to be cut. What a cell says
is in the chip table or follows from it; `-` where nothing is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from accel_bench import chips, markdown
from accel_bench.chips import Chip
from accel_bench.target import GPUS_PER_HOST, MAX_HOSTS, can_compile_for

UNITS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
NONE = "-"


@dataclass(frozen=True)
class Column:
    """A column: what a chip's cell in it says; a long one may take several lines."""

    title: str
    cell: Callable[[str, Chip], str]
    right: bool = True
    long: bool = False


@dataclass(frozen=True)
class Part:
    """One of the tables; the chip's name is its first column."""

    title: str
    columns: Sequence[Column]


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _figure(name: str) -> Callable[[str, Chip], str]:
    return lambda _, chip: _number(getattr(chip, name))


def _word(name: str) -> Callable[[str, Chip], str]:
    return lambda _, chip: getattr(chip, name) or NONE


def _peak(unit: str) -> Callable[[str, Chip], str]:
    return lambda _, chip: _number(chip.peaks.get(unit))


def _matrix_units(_: str, chip: Chip) -> str:
    if chip.matrix_size is None:
        return _number(chip.matrix_units)
    return f"{_number(chip.matrix_units)} of {chip.matrix_size}x{chip.matrix_size}"


def _cache(_: str, chip: Chip) -> str:
    return NONE if chip.cache_bytes is None else f"{chip.cache_bytes / 2**20:.3g}"


def _links(_: str, chip: Chip) -> str:
    if not chip.link_gbs:
        return NONE
    many = f"{chip.links} x " if (chip.links or 1) > 1 else ""
    return f"{chip.link_name} {many}{chip.link_gbs:g}"


def _network(_: str, chip: Chip) -> str:
    return _number(chip.nic_gbs or chip.dcn_gbs)


def _target(name: str, chip: Chip) -> str:
    """The largest target of this chip as it is written; nothing where none can be compiled for."""
    if not can_compile_for(chip, chip.platform):
        return NONE
    largest = "x".join(map(str, chip.largest)) or f"{MAX_HOSTS}x{GPUS_PER_HOST}"
    return f"{chip.platform}:{name}:{largest}"


PARTS = (
    Part(
        "chips; cores: multiprocessors, compute units or TensorCores",
        (
            Column("architecture", _word("architecture"), right=False),
            Column("year", _figure("year")),
            Column("cores", _figure("cores")),
            Column("fp32 units", _figure("fp32_units")),
            Column("matrix units", _matrix_units),
            Column("GHz", _figure("clock_ghz")),
            Column("W", _figure("watts")),
        ),
    ),
    Part(
        "dense peaks in TFLOP/s (int8: TOP/s), per chip",
        tuple(Column(unit, _peak(unit)) for unit in UNITS),
    ),
    Part(
        "memory, and GB/s of links and network in one direction",
        (
            Column("GiB", _figure("memory_gb")),
            Column("kind", _word("memory_kind"), right=False),
            Column("GB/s", _figure("bandwidth_gbs")),
            Column("cache MiB", _cache),
            Column("links GB/s", _links, right=False),
            Column("network GB/s", _network),
        ),
    ),
    Part(
        "use; largest target to compile for, none where nothing here compiles for the chip",
        (
            Column("made for", _word("made_for"), right=False),
            Column("jax devices", _figure("devices_per_chip")),
            Column("largest target", _target, right=False),
        ),
    ),
    Part(
        "where each figure was read",
        (Column("source", _word("source"), right=False, long=True),),
    ),
)


def rows(part: Part, shown: Mapping[str, Chip]) -> Iterator[list[str]]:
    """The name and the cells of each chip."""
    for name, chip in shown.items():
        yield [name, *(column.cell(name, chip) for column in part.columns)]


def header(part: Part) -> list[str]:
    """Titles of the columns."""
    return ["chip", *(column.title for column in part.columns)]


def legend() -> list[tuple[str, str]]:
    """What the letters of sources stand for, and the sources of what no row says one for."""
    return [*chips.SOURCES.items(), *chips.FIELD_SOURCES.items()]


def print_chips(shown: Mapping[str, Chip], console: Console) -> None:
    """Prints these chips of the table."""
    for part in PARTS:
        table = Table(title=part.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("chip", no_wrap=True)
        for column in part.columns:
            justify = "right" if column.right else "left"
            title = column.title.replace(" ", "\n") if column.right else column.title
            if column.long:
                table.add_column(title, overflow="fold")
            else:
                table.add_column(title, justify=justify, no_wrap=True)
        for cells in rows(part, shown):
            table.add_row(*cells)
        console.print(table)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=16)
    grid.add_column(overflow="fold")
    for letter, source in legend():
        grid.add_row(letter, source)
    console.print(grid)


def markdown_text(shown: Mapping[str, Chip]) -> str:
    """These chips of the table as Markdown."""
    lines = ["# Chips", ""]
    for part in PARTS:
        lines += [f"## {part.title}", "", markdown.line(header(part))]
        lines.append(f"|{'|'.join(['---', *('--:' if c.right else '---' for c in part.columns)])}|")
        lines += [*map(markdown.line, rows(part, shown)), ""]
    return "\n".join([*lines, *(f"- {letter}: {source}" for letter, source in legend())]) + "\n"
