import pytest

from accel_bench import compilers
from accel_bench.target import parse

H100, V100, V5E = parse("gpu:h100_sxm:1"), parse("gpu:v100_sxm2:1"), parse("tpu:v5e:1x1")
JAX = {"jax": "0.10.2", "jaxlib": "0.10.2"}
CUDA13 = {
    "jax-cuda13-plugin": "0.10.2", "jax-cuda13-pjrt": "0.10.2",
    "nvidia-cuda-nvcc": "13.0", "nvidia-nvvm": "13.0",
}  # fmt: skip
CUDA12 = {
    "jax-cuda12-plugin": "0.10.2", "jax-cuda12-pjrt": "0.10.2", "nvidia-cuda-nvcc-cu12": "12.9",
}  # fmt: skip


@pytest.fixture(autouse=True)
def linux(monkeypatch):
    monkeypatch.setattr(compilers.sys, "platform", "linux")
    monkeypatch.setattr(compilers.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(compilers, "_has_toolkit", lambda: False)
    monkeypatch.setattr(compilers, "_required_libtpu", lambda: "0.0.42")


def find(target, *groups):
    installed = {**JAX}
    for group in groups:
        installed |= group
    return compilers.find(target, installed.get)


def test_a_missing_wheel_is_named_with_the_command():
    assert find(V5E).missing == "the wheel libtpu is not installed: pip install -e '.[aot]'"
    said = "the wheel jax-cuda13-plugin is not installed: pip install -e '.[aot]'"
    assert find(H100).missing == said
    half = {name: v for name, v in CUDA13.items() if name != "nvidia-nvvm"}
    assert find(H100, half).missing == (
        "the wheel nvidia-nvvm is not installed: pip install nvidia-nvvm"
    )


def test_what_is_there_is_used():
    assert find(V5E, {"libtpu": "0.0.42.1"}) == compilers.Compiler({"libtpu": "0.0.42.1"})
    assert find(H100, CUDA13) == compilers.Compiler(CUDA13)


def test_a_toolkit_on_the_machine_stands_in_for_the_wheels(monkeypatch):
    monkeypatch.setattr(compilers, "_has_toolkit", lambda: True)
    plugin = {name: v for name, v in CUDA13.items() if name.startswith("jax")}
    assert find(H100, plugin).missing is None


@pytest.mark.parametrize("libtpu", ["0.0.50.1", "0.0.4", "0.0.421"])
def test_a_libtpu_of_another_version_is_refused_before_it_is_loaded(libtpu):
    assert find(V5E, {"libtpu": libtpu}).mismatch == (
        f"libtpu {libtpu} does not match jax 0.10.2, which needs 0.0.42: "
        "pip install 'jax[tpu]==0.10.2'"
    )


def test_a_plugin_of_another_version_is_refused_before_it_is_loaded():
    old = {**CUDA13, "jax-cuda13-plugin": "0.9.0"}
    assert find(H100, old).mismatch == (
        "jax-cuda13-plugin 0.9.0 does not match jaxlib 0.10.2: pip install "
        "jax-cuda13-plugin==0.10.2 jax-cuda13-pjrt==0.10.2"
    )


def test_of_two_compilers_the_one_that_knows_the_chip_is_taken():
    assert find(H100, CUDA13, CUDA12).hidden == ("jax_plugins.xla_cuda12",)
    assert find(V100, CUDA13, CUDA12).hidden == ("jax_plugins.xla_cuda13", "nvidia.cu13")
    assert find(V100, CUDA13).versions == CUDA13  # and the compiler says why it refuses
    assert find(H100, CUDA12).versions == CUDA12


@pytest.mark.parametrize(
    ("installed", "hidden"),
    [
        ({**CUDA12, **CUDA13, "nvidia-cudnn-cu12": "9"}, ("jax_plugins.xla_cuda13",)),
        ({**CUDA12, **CUDA13, "nvidia-cudnn-cu13": "9"}, ("jax_plugins.xla_cuda12",)),
        ({**CUDA12, **CUDA13}, ()),
        ({**CUDA13, "nvidia-cudnn-cu13": "9"}, ()),
        (CUDA13, ()),
        ({}, ()),
    ],
)
def test_a_real_gpu_is_left_to_the_plugin_that_has_its_libraries(installed, hidden):
    assert compilers.hidden_from_gpus(installed.get) == hidden


def test_elsewhere_it_is_said_that_there_are_none(monkeypatch):
    monkeypatch.setattr(compilers.platform, "machine", lambda: "arm64")
    assert "x86-64 Linux only" in (find(V5E, {"libtpu": "0.0.42.1"}).missing or "")


def test_jax_says_which_libtpu_it_needs(monkeypatch):
    monkeypatch.undo()
    wanted = compilers._required_libtpu()
    assert wanted
    assert wanted.count(".") >= 2
