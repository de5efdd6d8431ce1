"""What `python main.py list` shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from accel_bench import chips, config_files, detect
from accel_bench.precision import PRECISIONS
from accel_bench.record import FLAGS
from accel_bench.tables import make_console
from accel_bench.target import GPUS_PER_HOST, MAX_HOSTS, can_compile_for
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


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _target(name: str, chip: chips.Chip) -> str:
    """The largest target of this chip as it is written; nothing where none can be compiled for."""
    if not can_compile_for(chip, chip.platform):
        return "-"
    largest = "x".join(map(str, chip.largest)) or f"{MAX_HOSTS}x{GPUS_PER_HOST}"
    return f"{chip.platform}:{name}:{largest}"


def show_chips(names: Sequence[str] = ()) -> None:
    """Prints the chip table, or the rows of these chips.

    Raises:
      RequestError: there is no such chip.
    """
    shown = {name: chips.lookup(name) for name in names} or chips.CHIPS
    columns = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    table = _table(
        "chips: dense peaks in TFLOP/s (int8: TOP/s), per chip; "
        "GB/s of links and network in one direction; - where none is published",
        "chip", *columns, "GiB", "GB/s", "links GB/s", "network GB/s", "GHz", "W", "jax devices",
        "year", "largest target", "source",
    )  # fmt: skip
    for name, chip in shown.items():
        many = f"{chip.links} x " if (chip.links or 1) > 1 else ""
        link = f"{chip.link_name} {many}{chip.link_gbs:g}" if chip.link_gbs else "-"
        table.add_row(
            name,
            *(_number(chip.peaks.get(unit)) for unit in columns),
            _number(chip.memory_gb),
            _number(chip.bandwidth_gbs),
            link,
            _number(chip.nic_gbs or chip.dcn_gbs),
            _number(chip.clock_ghz),
            _number(chip.watts),
            str(chip.devices_per_chip),
            _number(chip.year),
            _target(name, chip),
            chip.source,
        )
    console = make_console()
    console.print(table)
    for key, source in chips.SOURCES.items():
        console.print(f"  {key}  {source}")


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
