import pytest

from accel_bench import config_files
from accel_bench.cases import Case
from accel_bench.plan import Job, cpu_devices, make_plan, worker_environ

XLA = Job(Case("m", "matmul", {"shape": "64"}, "fp32"), {})
NUMPY = Job(Case("m", "matmul", {"shape": "64"}, "fp32", "numpy_1thread"), {})


@pytest.fixture
def smoke(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    return config_files.load("smoke")


def test_a_cpu_worker_starts_no_other_back_end(smoke):
    environ = worker_environ(make_plan(smoke), XLA)
    assert environ["JAX_PLATFORMS"] == "cpu"
    assert environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    smoke.huge_pages = False
    assert "GLIBC_TUNABLES" not in worker_environ(make_plan(smoke), XLA)


def test_virtual_devices_replace_those_of_the_environment(smoke, monkeypatch):
    flags = "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=8"
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert cpu_devices(smoke) == 8
    smoke.fake_devices = 2
    assert cpu_devices(smoke) == 2
    assert worker_environ(make_plan(smoke), XLA)["XLA_FLAGS"] == (
        "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=2"
    )


def test_one_thread_is_set_before_the_library_is_loaded(smoke):
    environ = worker_environ(make_plan(smoke), NUMPY)
    assert environ["OPENBLAS_NUM_THREADS"] == environ["OMP_NUM_THREADS"] == "1"
