"""A run from its plan to its records: the whole data flow."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_bench import config as configs
from accel_bench import mesh, workdir
from accel_bench.cases import XLA, Case
from accel_bench.errors import RequestError
from accel_bench.executors import Executor, InProcess
from accel_bench.plan import Plan
from accel_bench.progress import Progress, Silent
from accel_bench.record import FAILURES, Record
from accel_bench.supervisor import Reply
from accel_bench.workdir import Workdir


def run(
    plan: Plan,
    path: Path | None = None,
    resume: bool = False,
    retry: bool = False,
    progress: Progress | None = None,
) -> list[Record]:
    """Runs the cases of a plan and journals one record each.

    Args:
      plan: what to run.
      path: working directory; None makes one below `runs/`.
      resume: carry on where records are in it already; cases that have one are not run again.
      retry: run those again whose record says that something went wrong.
      progress: is told how it goes.

    Returns:
      All records of the working directory, earlier ones first.

    Raises:
      RequestError: the working directory cannot be used, or the back end cannot be started.
      JournalError: a record could not be written (a full disk). The records before it are whole.
    """
    progress = progress or Silent()
    path = path or workdir.default_path(plan.config)
    place = Workdir(path, plan.config, plan.axes, resume)
    # The last record of a case is the one that counts.
    records = {record_key(record): record for record in place.earlier}
    have = {key for key, r in records.items() if not (retry and r.status in FAILURES)}
    todo = [case for case in plan.cases if case_key(case, plan.axes) not in have]
    run_id = uuid.uuid4().hex[:12]
    executor = Executor(plan, place) if plan.isolated else InProcess(plan, place)
    try:
        if todo:
            executor.start(todo[0])
            _require_same_machine(place, executor.target)
        progress.begin(place.path, len(todo), len(have), place.problems)
        for case in todo:
            progress.case(case)
            reply = executor.execute(case, progress)
            record = to_record(plan, run_id, case, reply)
            place.journal.append(record)
            records[record_key(record)] = record
            progress.done(case, record)
    except RequestError:  # only from the start: nothing has been measured
        place.discard()
        raise
    finally:
        executor.close()
        progress.end()
        place.close()
    return list(records.values())


def _require_same_machine(place: Workdir, target: Mapping[str, Any]) -> None:
    """A working directory holds what one machine did; another one's records are for `compare`.

    Raises:
      RequestError: the records that are there were made on other devices.
    """
    for record in place.earlier:
        for field in ("device_kind", "num_devices"):
            held, now = record.target.get(field), target.get(field)
            if record.implementation == XLA and None not in (held, now) and held != now:
                raise RequestError(
                    f"--workdir={place.path} holds records of {field} {held}, and this is {now}: "
                    "choose another --workdir, and compare the two"
                )


def to_record(plan: Plan, run_id: str, case: Case, reply: Reply) -> Record:
    """The record of a case from what the worker, or its end, said."""
    measured = reply.measurement
    return Record(
        run_id=run_id,
        config_hash=configs.config_hash(plan.config),
        workload=case.workload,
        params=case.params,
        precision=case.precision,
        implementation=case.implementation,
        mesh=dict(plan.axes),
        target=reply.target or {"kind": "measured", "platform": plan.platform},
        status=reply.status,
        reason=reply.reason,
        samples_s=measured.get("samples_s", []) if reply.status == "ok" else [],
        compile_s=measured.get("compile_s"),
        first_call_s=measured.get("first_call_s"),
        facts=measured.get("facts", {}),
        env=reply.env,
    )


def case_key(case: Case, axes: Mapping[str, int]) -> tuple[str, str]:
    """What makes two cases the same within one experiment."""
    return case.key, mesh.text(axes)


def record_key(record: Record) -> tuple[str, str]:
    """`case_key` of the case that a record is about."""
    case = Case("", record.workload, record.params, record.precision, record.implementation)
    return case_key(case, record.mesh)
