"""From Python, without flags: what a notebook does."""

import dataclasses

import jax.numpy as jnp
import ml_collections
import pytest

import accel_bench
from accel_bench import config_files, record, workloads
from accel_bench.errors import RequestError
from accel_bench.workloads.base import Workload


def small():
    config = config_files.load("smoke")
    # A ConfigDict may not lose fields by assignment of a dict, so build the cases anew.
    config.cases = ml_collections.ConfigDict({"it": {"workload": "matmul", "shape": ("64", "96")}})
    config.measure.max_seconds = 0.05
    return config


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_run_works_and_works_again(isolation, tmp_path):
    first = accel_bench.run(small(), workdir=tmp_path / "a", isolation=isolation)
    second = accel_bench.run(small(), workdir=tmp_path / "b", isolation=isolation)
    assert [row.status for row in (*first, *second)] == ["ok"] * 4
    assert first[0].config_hash == second[0].config_hash
    assert first[0].facts["error"] == second[0].facts["error"]


def test_run_takes_a_path_and_fields(tmp_path, monkeypatch):
    import sys

    monkeypatch.setattr(sys, "argv", ["kernel", "-f", "/tmp/kernel-1234.json"])
    rows = accel_bench.run(small(), workdir=tmp_path / "a", precision="fp32, bf16")
    assert [row.precision for row in rows] == ["fp32", "bf16"] * 2
    again = accel_bench.run(tmp_path / "a" / "config.json", workdir=tmp_path / "a", resume=True)
    assert again == rows


def test_the_callers_config_is_left_as_it_was(tmp_path):
    config = small()
    accel_bench.run(config, workdir=tmp_path / "a", precision="bf16")
    assert config.precision == ("fp32",)


def test_an_unknown_field_is_refused():
    with pytest.raises(RequestError, match="did you mean 'device'"):
        accel_bench.run(small(), devise="cpu")


def test_virtual_devices_that_cannot_be_had_any_more_are_refused(tmp_path):
    """This very process has eight already."""
    with pytest.raises(RequestError, match="--fake_devices=4, but the back end has 8 devices"):
        accel_bench.run(small(), workdir=tmp_path / "a", isolation="none", fake_devices=4)
    assert not (tmp_path / "a").exists()


def test_a_nan_costs_its_own_row_only(tmp_path, monkeypatch):
    original = workloads.WORKLOADS["matmul"].builder()

    def build(params, precision, mesh):
        workload: Workload = original(params, precision, mesh)
        if params.shape == "96":
            return workload
        return dataclasses.replace(workload, fn=lambda a, b: workload.fn(a, b) * jnp.nan)

    monkeypatch.setattr(workloads.Spec, "builder", lambda self: build)
    rows = accel_bench.run(small(), workdir=tmp_path / "a", isolation="none")
    assert [row.status for row in rows] == ["nonfinite", "ok"]


def test_a_record_that_breaks_the_schema_costs_its_own_row_only(tmp_path, monkeypatch):
    original = workloads.WORKLOADS["matmul"].builder()

    def build(params, precision, mesh):
        workload: Workload = original(params, precision, mesh)
        facts = {"attention": 7} if params.shape == "64" else {}
        return dataclasses.replace(workload, facts={**workload.facts, **facts})

    monkeypatch.setattr(workloads.Spec, "builder", lambda self: build)
    rows = accel_bench.run(small(), workdir=tmp_path / "a", isolation="none")
    assert [row.status for row in rows] == ["failed", "ok"]
    assert "breaks the schema: facts.attention holds 7" in (rows[0].reason or "")
    written = record.read(tmp_path / "a" / record.FILE_NAME)
    assert [row.status for row in written.records] == ["failed", "ok"]


def test_an_exception_costs_its_own_row_only(tmp_path, monkeypatch):
    original = workloads.WORKLOADS["matmul"].builder()

    def build(params, precision, mesh):
        if params.shape == "64":
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")
        return original(params, precision, mesh)

    monkeypatch.setattr(workloads.Spec, "builder", lambda self: build)
    rows = accel_bench.run(small(), workdir=tmp_path / "a", isolation="none")
    assert [(row.status) for row in rows] == ["oom", "ok"]
