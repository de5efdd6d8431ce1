"""What makes two jobs the same, and a record the record of a job, within one experiment."""

from __future__ import annotations

from accel_bench import derive, mesh
from accel_bench.cases import Case
from accel_bench.plan import Job
from accel_bench.record import Record


def job_key(job: Job) -> tuple[str, str, str]:
    """What makes two jobs the same within one experiment."""
    return job.case.key, mesh.text(job.axes), str(job.target or "")


def record_key(record: Record) -> tuple[str, str, str]:
    """`job_key` of the job that a record is about."""
    case = Case("", record.workload, record.params, record.precision, record.implementation)
    return case.key, mesh.text(record.mesh), derive.target_name(record)
