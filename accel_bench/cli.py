"""The commands behind main.py: from parsed flags to an exit status."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from accel_bench import config_files
from accel_bench.config import Config
from accel_bench.detect import PLATFORMS
from accel_bench.errors import RequestError, RunError, unknown
from accel_bench.record import FAILURES, JournalError, Record

COMMANDS = ("run", "compare", "summary", "plan", "list")
LISTS = ("devices", "chips", "workloads", "configs", "precisions", "models", "flags")
# Flags that set a field of the config of the same name.
FIELD_FLAGS = (
    "device",
    "precision",
    "mesh",
    "fake_devices",
    "baselines",
    "timeout_s",
    "deterministic",
    "profile",
    "isolation",
    "targets",
    "compile_cache",
    "dump_hlo",
    "find_smallest_fit",
    "coordinator",
    "num_processes",
    "process_id",
)


# Command -> the flags that mean something to it; another one is refused and never passed over.
FLAGS_OF = {
    "run": (*FIELD_FLAGS, "config", "workdir", "resume", "retry", "strict"),
    "compare": (
        "html", "csv", "markdown", "json", "reference", "baseline", "threshold", "claims",
    ),
    "summary": (),
    "plan": (
        "model", "tokens", "targets", "batch_tokens", "length", "precision", "mesh", "records",
        "prices", "plan_compiles", "plan_budget_s", "published", "workdir", "timeout_s",
        "compile_cache", "markdown", "json",
    ),
    "list": ("markdown",),
}  # fmt: skip


def parse(values: flags.FlagValues, argv: Sequence[str]) -> list[str]:
    """Parses the command line; on a mistake prints one line and exits with status 2."""
    if {"--help", "-h", "-help", "--h"} & set(argv[1:]):
        app.usage(writeto_stdout=True)
        sys.exit(0)  # absl's own would say 1, which here means that a case failed
    try:
        values.set_gnu_getopt(True)  # flags may stand behind the command
        given = list(argv)
        resolved = _resolve_config(list(argv))
        sys.argv[:] = resolved  # where ml_collections looks whether --config comes first
        arguments = values(resolved)
        _check_flags(arguments, values, given)
        return arguments
    except RequestError as error:
        _exit(str(error))
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        _exit(_one_line(error))
    raise AssertionError


def _check_flags(arguments: Sequence[str], values: flags.FlagValues, argv: Sequence[str]) -> None:
    """Raises `RequestError` for a flag that the command has no use for."""
    command = arguments[1] if len(arguments) > 1 else "run"
    if command not in FLAGS_OF:
        return  # it is answered with those that there are
    ours = {name for names in FLAGS_OF.values() for name in names}
    given = {name for name in ours - {"config"} if values[name].present}
    # The parser itself adds --config where there is none.
    given |= {"config" for word in argv if re.match(r"--?(no)?config([=.]|$)", word)}
    for name in sorted(given - set(FLAGS_OF[command])):
        of = " and ".join(other for other, names in FLAGS_OF.items() if name in names)
        raise RequestError(f"--{name} is for {of}, not for {command}: leave it out")


def _exit(message: str) -> None:
    _say(message)
    sys.exit(2)


def _say(message: str) -> None:
    """One line on standard error, whatever a value in it holds."""
    line = "".join(c if c.isprintable() else " " for c in message)
    print(f"main.py: {line}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    """The part of a library's message that a person can act on, on one line."""
    text = " ".join(str(part) for part in error.args) or str(error)
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    if lines and lines[0].startswith("Error whilst parsing config file"):
        lines = lines[-1:]
    text = " ".join(lines) or type(error).__name__
    # absl shows some of its own errors as tuples.
    return re.sub(r"""\('([^']*)', '?([^')]*)'?\)""", r"\1: \2", text)


def _resolve_config(argv: list[str]) -> list[str]:
    """Puts the file that is meant in the place of `--config`'s value, or adds the flag."""
    for i, argument in enumerate(argv):
        if re.fullmatch(r"--?config", argument) and i + 1 < len(argv):
            argv[i : i + 2] = [f"{argument}={argv[i + 1]}"]
            break
    for i, argument in enumerate(argv):
        match = re.fullmatch(r"--?config=(.*)", argument, re.DOTALL)
        if match:
            name = match[1]
            del argv[i]
            break
    else:
        name = _default_config(argv)
    _check_overrides(argv, config_files.load(name))
    return [argv[0], f"--config={config_files.flag_value(name)}", *argv[1:]]


def _check_overrides(argv: Sequence[str], config: Config) -> None:
    """Finds a misspelt `--config.field` before ml_collections does, to say more about it."""
    for argument in argv:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        section = config
        for word in match[1].split(".") if match else ():
            if not hasattr(section, "keys"):
                raise RequestError(f"--config.{match and match[1]}: there is no field below it")
            if word not in section:
                raise unknown("config field", word, section.keys())
            section = section[word]
        if match and set(PLATFORMS) == set(getattr(section, "keys", dict)()):
            raise RequestError(
                f"--config.{match[1]} has a value for each platform: set --config.{match[1]}.cpu= "
                "(or .gpu=, .tpu=)"
            )


def _default_config(argv: Sequence[str]) -> str:
    """A resumed run goes on with the config it left in its workdir."""
    from accel_bench import workdir

    joined = "\n".join(argv)
    place = re.search(r"^--?workdir[=\n](.+)$", joined, re.MULTILINE)
    if place and re.search(r"^--?resume(=true)?$", joined, re.MULTILINE):
        return str(workdir.find_config(Path(place[1])))
    return "configs/default.py"


def main(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Carries out a command; returns the exit status.

    Args:
      arguments: the program's name, the command and what it works on.
      values: the parsed flags.
    """
    command, rest = (arguments[1], arguments[2:]) if len(arguments) > 1 else ("run", [])
    commands: dict[str, Callable[[Sequence[str], flags.FlagValues], int]] = {
        "run": _run,
        "compare": _compare,
        "summary": _summary,
        "plan": _plan,
        "list": _list,
    }
    _mend_streams()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a scheduler ends a job: in order
    status = 0
    try:
        if command not in commands:
            raise unknown("command", command, COMMANDS)
        status = commands[command](rest, values)
        sys.stdout.flush()
        return status
    except RequestError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        place = values.workdir or "the folder named above"
        leads = command == "run" and not values.process_id
        more = f"; --resume --workdir={place} carries on" if leads else ""
        _say(f"interrupted{more}")
        return 130
    except OSError as error:  # of standard output: a record's and a workdir's have their own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            return status
        print(f"main.py: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1


def _mend_streams() -> None:
    """Output goes on where a stream is closed, or cannot show a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the process's life
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _run(rest: Sequence[str], values: flags.FlagValues) -> int:
    from accel_bench import api

    if rest:
        raise RequestError(f"run takes flags only, not {rest[0]!r}: see python main.py --help")
    fields: Mapping[str, Any] = {name: values[name].value for name in FIELD_FLAGS}
    if values.resume and not values.workdir:
        raise RequestError("--resume needs --workdir=DIR: the run to carry on")
    try:
        records = api.run(
            values.config, workdir=values.workdir, resume=values.resume, retry=values.retry,
            show=True, fields=fields,
        )  # fmt: skip
    except RunError as error:
        _say(str(error))
        return 1
    except JournalError as error:
        print(
            f"main.py: a record could not be written: {error.strerror or error}; those before it "
            "are whole: make room and add --resume",
            file=sys.stderr,
        )
        return 1
    return exit_status(records, values.strict)


def exit_status(records: Sequence[Record], strict: bool) -> int:
    """0 where no case failed (with `strict`: and none was unsupported or skipped), else 1.

    That a size was too small is no failure of a search that found a larger one.
    """
    from accel_bench.compiled_findings import expected

    probes = expected(records)
    found = {record.status for record in records if record not in probes}
    return int(bool(found & FAILURES) or (strict and found != {"ok"}))


def _compare(rest: Sequence[str], values: flags.FlagValues) -> int:
    from accel_bench.compare import Outputs, check_baseline, compare

    paths = [Path(path) for path in rest]
    files = {name: values[name].value for name in ("html", "csv", "markdown", "json")}
    if values.claims:
        return _claims(paths, values, files)
    if values.baseline:
        beside = [name for name in (*files, "reference") if values[name].value]
        if beside:
            raise RequestError(
                f"--baseline prints verdicts; for --{beside[0]} run compare without --baseline too"
            )
        return check_baseline(Path(values.baseline), paths, values.threshold)
    outputs = Outputs(**{name: Path(file) for name, file in files.items() if file})
    compare(paths, reference=values.reference, outputs=outputs)
    return 0


def _claims(
    paths: Sequence[Path], values: flags.FlagValues, files: Mapping[str, str | None]
) -> int:
    from accel_bench.claims.report import Outputs, report

    for name in ("baseline", "reference", "csv"):
        if values[name].value:
            raise RequestError(
                f"--claims judges claims and compares no rows: for --{name} run compare without it"
            )
    chosen = {name: Path(file) for name, file in files.items() if file}
    report(paths, outputs=Outputs(**chosen))
    return 0


def _summary(rest: Sequence[str], values: flags.FlagValues) -> int:
    from accel_bench.summary import show

    del values
    if len(rest) != 1:
        raise RequestError("summary takes one workdir: python main.py summary DIR")
    show(Path(rest[0]))
    return 0


def _plan(rest: Sequence[str], values: flags.FlagValues) -> int:
    from accel_bench.planner import command
    from accel_bench.planner import request as requests
    from accel_bench.planner.search import config_of

    if rest:
        raise RequestError(f"plan takes flags only, not {rest[0]!r}: see python main.py --help")
    json, markdown = (Path(f) if f else None for f in (values.json, values.markdown))
    command.check_outputs([f for f in (json, markdown) if f])
    if values.published:
        if values.model or values.tokens or values.targets:
            raise RequestError("plan --published takes no --model, --tokens or --targets")
        command.write_published(json, markdown)
        return 0
    request = requests.make(
        model=values.model, tokens=values.tokens, named=values.targets,
        batch_tokens=values.batch_tokens, length=values.length, precisions=values.precision,
        axes=values.mesh, prices=values.prices, compiles=values.plan_compiles,
        budget_s=values.plan_budget_s,
    )  # fmt: skip
    forecasts = command.plan(
        request,
        config_of(request, {name: values[name].value for name in ("timeout_s", "compile_cache")}),
        requests.directories(values.records),
        Path(values.workdir) if values.workdir else None,
        show_progress=True,
    )
    command.write_plan(request, forecasts, json, markdown)
    return command.exit_status(forecasts)


def _list(rest: Sequence[str], values: flags.FlagValues) -> int:
    from accel_bench import listing

    name, *chosen = rest or [""]
    if name and name not in LISTS:
        raise unknown("list", name, LISTS)
    if chosen and name != "chips":
        raise RequestError(f"list {name} takes no more words; list chips takes names of chips")
    if values.markdown and name != "chips":
        raise RequestError("--markdown is for list chips, not for other lists: leave it out")
    chosen = [chip for word in chosen for chip in word.split(",") if chip]
    if name == "chips":
        listing.show_chips(chosen, Path(values.markdown) if values.markdown else None)
        return 0
    for each in [name] if name else LISTS:
        listing.show(each)
    return 0
