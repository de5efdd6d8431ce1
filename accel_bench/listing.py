"""What `python main.py list` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from accel_bench import chip_listing, chips, config_files, detect
from accel_bench.precision import PRECISIONS
from accel_bench.record import FLAGS
from accel_bench.tables import make_console
from accel_bench.workloads import WORKLOADS
from models import costs
from models.sizes import SIZES


def show(name: str) -> None:
    """Prints the list of this name, one of `accel_bench.cli.LISTS`."""
    {
        "devices": _devices,
        "chips": show_chips,
        "workloads": _workloads,
        "configs": _configs,
        "precisions": _precisions,
        "models": _models,
        "flags": _flags,
    }[name]()


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _devices() -> None:
    found = detect.attached()
    table = _table("attached devices", "--device", "what", "usable by jax")
    for platform in detect.PLATFORMS:
        if found.counts[platform]:
            usable = "yes" if found.plugins[platform] else "no: its plugin is not installed"
            table.add_row(platform, found.name[platform], usable)
    make_console().print(table)


def show_chips(names: Sequence[str] = (), markdown: Path | None = None) -> None:
    """Prints the chip table, or the rows of these chips, and writes a file as Markdown too.

    Raises:
      RequestError: there is no such chip, or the file cannot be written.
    """
    shown = {name: chips.lookup(name) for name in names} or chips.CHIPS
    if markdown:
        from accel_bench.export import write

        write(markdown, chip_listing.markdown_text(shown))
    chip_listing.print_chips(shown, make_console())


def _workloads() -> None:
    table = _table("workloads", "name", "parameters", "what it measures")
    for name, spec in WORKLOADS.items():
        fields = [f for f in spec.params.__dataclass_fields__ if f != "overrides"]
        table.add_row(name, ", ".join(fields), spec.summary)
    make_console().print(table)


def _configs() -> None:
    table = _table("configs", "--config", "what it runs")
    for name, path in config_files.known().items():
        table.add_row(f"configs/{name}.py", config_files.summary(path))
    make_console().print(table)


def _precisions() -> None:
    table = _table("precisions", "--precision", "stored", "multiplied", "summed", "result", "how")
    for name, entry in PRECISIONS.items():
        how = entry.dot or "the back end's default"
        table.add_row(name, entry.storage, entry.compute, entry.accumulate, entry.output, how)
    make_console().print(table)


def _models() -> None:
    columns = ("model", "parameters", "layers", "width", "heads", "context", "source")
    table = _table("models", *columns)
    for name, size in SIZES.items():
        heads = f"{size.num_heads}/{size.num_kv_heads}"
        count = f"{costs.param_count(size):,}"
        shape = (size.num_layers, size.width, heads, size.context)
        table.add_row(name, count, *(str(figure) for figure in shape), size.source)
    make_console().print(table)


def _flags() -> None:
    table = _table("marks on rows", "flag", "what it means")
    for name, meaning in FLAGS.items():
        table.add_row(name, meaning)
    make_console().print(table)
