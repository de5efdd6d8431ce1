import dataclasses

import pytest

from accel_bench import detect
from accel_bench.detect import Attached, choose
from accel_bench.errors import RequestError

CPU_ONLY = Attached(
    counts={"cpu": 1, "gpu": 0, "tpu": 0},
    plugins={"cpu": True, "gpu": False, "tpu": False},
    name={"cpu": "Some CPU, 2 cores", "gpu": "0 x GPU", "tpu": "0 x TPU"},
)
GPU = Attached(
    counts={"cpu": 1, "gpu": 2, "tpu": 0},
    plugins={"cpu": True, "gpu": True, "tpu": False},
    name={"cpu": "Some CPU, 2 cores", "gpu": "2 x NVIDIA H100", "tpu": ""},
)
GPU_WITHOUT_PLUGIN = dataclasses.replace(GPU, plugins={"cpu": True, "gpu": False, "tpu": False})


@pytest.fixture(autouse=True)
def no_platforms_set(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)


def test_auto_takes_the_best_and_says_which():
    assert choose("auto", GPU) == ("gpu", "measuring on 2 x NVIDIA H100")
    assert choose("auto", CPU_ONLY) == ("cpu", "measuring on the CPU: Some CPU, 2 cores")


def test_auto_says_what_keeps_it_from_an_accelerator():
    platform, sentence = choose("auto", GPU_WITHOUT_PLUGIN)
    assert platform == "cpu"
    assert "2 x NVIDIA H100 is attached but jax has no plugin for it: pip install" in sentence


def test_auto_follows_jax_platforms(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    platform, sentence = choose("auto", GPU)
    assert platform == "cpu"
    assert "JAX_PLATFORMS=cpu is set" in sentence


def test_a_named_device_that_is_absent_is_an_error_that_says_what_is_there():
    with pytest.raises(RequestError) as error:
        choose("gpu", CPU_ONLY)
    assert str(error.value) == (
        "--device=gpu was asked for, but no GPU is attached: this machine has the CPU (Some CPU, "
        "2 cores); use --device=auto or --device=cpu"
    )


def test_a_named_device_without_its_plugin_names_the_command():
    with pytest.raises(RequestError, match=r"no plugin for it: pip install 'jax\[cuda13\]'"):
        choose("gpu", GPU_WITHOUT_PLUGIN)


def test_this_machine_is_described():
    found = detect.attached()
    assert found.counts["cpu"] == 1
    assert detect.cpu_model() in found.describe()
    caches = detect.cpu_caches()
    assert list(caches.values()) == sorted(caches.values())
