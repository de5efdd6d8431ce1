"""A run from its plan to its records: the whole data flow."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_bench import compile_cache, env, follower, workdir
from accel_bench import config as configs
from accel_bench.cases import XLA
from accel_bench.errors import RequestError
from accel_bench.executors import Executor, InProcess
from accel_bench.jobs import job_key, record_key
from accel_bench.lead import Lead
from accel_bench.plan import Job, Plan, worker_environ
from accel_bench.progress import Progress, Silent
from accel_bench.record import FAILURES, Record, RecordError
from accel_bench.supervisor import START_TIMEOUT_S, Reply
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
      All records of the working directory, earlier ones first; none in a process of a cluster
      that is not its first.

    Raises:
      RequestError: the working directory cannot be used, the back end cannot be started, or the
        other processes cannot be reached.
      JournalError: a record could not be written (a full disk). The records before it are whole.
      RunError: the first process of the cluster, which this one followed, is gone.
    """
    lead, cluster = None, plan.cluster
    if cluster:
        if cluster.process_id:
            timeout_s = min(START_TIMEOUT_S, plan.config.timeout_s)
            follower.follow(cluster, plan.experiment, timeout_s)
            return []
        lead = Lead(cluster, plan.experiment)
    try:
        return _run(plan, lead, path, resume, retry, progress or Silent())
    finally:
        if lead:
            lead.close()


def _run(
    plan: Plan, lead: Lead | None, path: Path | None, resume: bool, retry: bool, progress: Progress
) -> list[Record]:
    path = path or workdir.default_path(plan.config)
    meshes = [job.axes for job in plan.jobs if job.target is None] or [plan.axes]
    place = Workdir(path, plan.config, meshes, resume)
    if plan.config.dump_hlo:
        place.make_folder("hlo")
    # The last record of a case is the one that counts.
    records = {record_key(record): record for record in place.earlier}
    have = {key for key, r in records.items() if not (retry and r.status in FAILURES)}
    todo = [job for job in plan.jobs if job_key(job) not in have]
    work = Work(plan, place, lead, progress)

    def do(job: Job) -> Record:
        key = job_key(job)
        if key not in have:
            records[key] = work.do(job)
            have.add(key)
        elif job.searched and records[key].facts.get("searched") != job.searched:
            # It was there before the search and is part of it now.
            records[key].facts["searched"] = job.searched
            work.write(records[key])
        return records[key]

    try:
        work.start(todo)
        most = sum(len(search).bit_length() for search in plan.searches)
        progress.begin(place.path, len(todo) + most, len(have), place.problems)
        for job in todo:
            do(job)
        for search in plan.searches:
            _find_smallest(search, do)
    except RequestError:  # only from the start: nothing has been measured
        place.discard()
        raise
    finally:
        work.close()
        progress.end()
        place.close()
    return list(records.values())


class Work:
    """Does jobs and journals their records."""

    def __init__(self, plan: Plan, place: Workdir, lead: Lead | None, progress: Progress) -> None:
        self._plan, self._place, self._progress = plan, place, progress
        self._workers = Executor(plan, place, lead)
        self._measuring = self._workers if plan.isolated else InProcess(plan, place)
        self._cache = compile_cache.directory(plan.config.compile_cache)
        self._run_id = uuid.uuid4().hex[:12]

    def start(self, todo: Sequence[Job]) -> None:
        """Starts what measures, if anything is to be measured.

        Raises:
          RequestError: it cannot be started, or is another machine than the records are of.
        """
        first = next((job for job in todo if job.target is None), None)
        if first:
            self._measuring.start(first)
            _require_same_machine(self._place, self._measuring.target)

    def do(self, job: Job) -> Record:
        """Does one job; its record is on the disk when this returns."""
        self._progress.case(job)
        record = self._compile(job) if job.target else self._run(job, self._measuring)
        if job.searched:
            record.facts["searched"] = job.searched
        record = self.write(record)
        self._progress.done(job, record)
        return record

    def write(self, record: Record) -> Record:
        """Journals a record; of one that breaks the schema no more than that it did."""
        try:
            self._place.journal.append(record)
        except RecordError as error:  # a defect of the suite's; the other cases are not to blame
            broken = {"status": "failed", "reason": str(error), "facts": {}, "samples_s": []}
            record = dataclasses.replace(record, **broken)
            self._place.journal.append(record)
        return record

    def _run(self, job: Job, executor: Executor | InProcess) -> Record:
        return self._record(job, executor.execute(job, self._progress))

    def _record(self, job: Job, reply: Reply) -> Record:
        return to_record(self._plan, self._run_id, job, reply)

    def _compile(self, job: Job) -> Record:
        if job.refusal:
            status, reason = job.refusal
            return self._record(job, Reply(status, reason, {}, None, env.capture()))
        environ = worker_environ(self._plan, job)
        # A kept record has no program to leave behind.
        cache = None if self._plan.config.dump_hlo else self._cache
        kept = compile_cache.load(cache, job, environ) if cache else None
        if kept:
            ours = {"run_id": self._run_id, "config_hash": configs.config_hash(self._plan.config)}
            return dataclasses.replace(kept, **ours)
        record = self._run(job, self._workers)
        if self._cache:
            compile_cache.save(self._cache, job, environ, record)
        return record

    def close(self) -> None:
        """Ends what was started."""
        self._measuring.close()
        self._workers.close()


def _find_smallest(search: Sequence[Job], do: Callable[[Job], Record]) -> None:
    """Bisects for the first job that fits, the larger ones taken to fit where a smaller one does.

    Ends with the record of the smallest that fits and, where there is one, of the next smaller
    size; with the largest alone, where not even that fits; or with what ended in another way, since
    a compiler that died says nothing of the size.
    """
    low, high = 0, len(search) - 1
    if do(search[high]).status != "ok":
        return
    while low < high:
        middle = (low + high) // 2
        status = do(search[middle]).status
        if status == "ok":
            high = middle
        elif status == "oom_compile":
            low = middle + 1
        else:
            return


def _require_same_machine(place: Workdir, target: Mapping[str, Any]) -> None:
    """A working directory holds what one machine did; another one's records are for `compare`.

    Raises:
      RequestError: the records that are there were made on other devices.
    """
    together = target.get("processes")
    measured = [r for r in place.earlier if r.target.get("kind") != "compiled"]
    for record in measured:
        if record.target.get("processes") != together:  # a case with a place of its own
            continue
        for field in ("device_kind", "attached"):
            held, now = record.target.get(field), target.get(field)
            if record.implementation == XLA and None not in (held, now) and held != now:
                raise RequestError(
                    f"--workdir={place.path} holds records of {field} {held}, and this is {now}: "
                    "choose another --workdir, and compare the two"
                )


def to_record(plan: Plan, run_id: str, job: Job, reply: Reply) -> Record:
    """The record of a job from what the worker, or its end, said."""
    measured, case = reply.measurement, job.case
    there = {"kind": "measured", "platform": plan.platform}
    return Record(
        run_id=run_id,
        config_hash=configs.config_hash(plan.config),
        workload=case.workload,
        params=case.params,
        precision=case.precision,
        implementation=case.implementation,
        mesh=dict(job.axes),
        target=reply.target or (job.target.record() if job.target else there),
        status=reply.status,
        reason=reply.reason,
        samples_s=measured.get("samples_s", []) if reply.status == "ok" else [],
        compile_s=measured.get("compile_s"),
        first_call_s=measured.get("first_call_s"),
        facts=dict(measured.get("facts", {})),
        env=reply.env,
    )
