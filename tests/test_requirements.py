"""What is installed on a notebook's runtime, and above all what is not touched there."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from accel_bench import compilers, requirements
from accel_bench.errors import RequestError

# Colab's GPU and TPU runtimes as their lists of packages give them.
GPU = {"jax": "0.10.1", "jaxlib": "0.10.1", "jax-cuda12-plugin": "0.10.1",
       "jax-cuda12-pjrt": "0.10.1", "nvidia-cuda-nvcc-cu12": "12.8.93", "numpy": "2.1.3",
       "nvidia-cudnn-cu12": "9.19.0.56"}  # fmt: skip
TPU = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1", "numpy": "2.1.3"}


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    """A runtime with these packages, and a pip that installs the newest it is asked for."""
    calls = []

    def make(packages, pip_changes=None, errors="", own=False):
        there = dict(packages)

        def pip(command, **_):
            behind = command.index("--constraint") + 1
            held, asked = Path(command[behind]).read_text().split(), command[behind + 1 :]
            calls.append((asked, held))
            names = {Requirement(text).name for text in asked}
            free = names - {line.split("==")[0] for line in held}
            there.update(dict.fromkeys(free, "99") | (pip_changes or {}))
            return SimpleNamespace(returncode=int(bool(errors)), stderr=errors)

        monkeypatch.setattr(compilers, "version", there.get)
        monkeypatch.setattr(requirements, "_versions_of_loaded", dict)
        monkeypatch.setattr(
            requirements.importlib.metadata,
            "distributions",
            lambda: [SimpleNamespace(metadata={"Name": n}, version=v) for n, v in there.items()],
        )
        monkeypatch.setattr(subprocess, "run", pip)
        monkeypatch.chdir(requirements.ROOT / "notebooks" if own else tmp_path)
        return calls

    return make


def full(packages):
    """With everything else that the suite needs."""
    names = [Requirement(line).name for line in requirements._project()["dependencies"]]
    return dict.fromkeys(names, "99") | packages


def test_what_is_missing_is_installed_beside_the_runtimes_jax(runtime):
    calls = runtime({**full(TPU), "flax": "0.11.2", "orjson": None})
    (said,) = requirements.install()
    ((asked, held),) = calls
    assert asked == ["flax>=0.12.6", "orjson>=3.10"]
    assert {"jax==0.10.2", "jaxlib==0.10.2", "libtpu==0.0.42.1", "numpy==2.1.3"} <= set(held)
    assert said == "Installed: flax, orjson. jax is 0.10.2 as before."


def test_nothing_is_installed_where_nothing_is_missing(runtime):
    calls = runtime(full(GPU))
    assert requirements.install() == ["All that the suite needs is there: nothing was installed."]
    assert calls == []


def test_a_jax_that_is_too_old_is_refused(runtime):
    calls = runtime(full(TPU | {"jax": "0.7.2"}))
    with pytest.raises(RequestError, match=r"this runtime's jax 0.7.2 is too old.*jax>=0\.10\.0"):
        requirements.install()
    assert calls == []


@pytest.mark.parametrize(
    ("packages", "wanted"), [(TPU, "jax[tpu]>=0.10.0"), (GPU, "jax[cuda12]>=0.10.0")]
)
def test_a_jax_that_is_too_old_is_replaced_with_its_plugin_if_asked_to(runtime, packages, wanted):
    calls = runtime(full(packages | {"jax": "0.7.2"}))
    (said,) = requirements.install(upgrade_jax=True)
    ((asked, held),) = calls
    assert asked == [wanted]
    assert held == ["numpy==2.1.3"]
    assert said == f"Installed: {wanted.split('>')[0]}. jax is 99."


def test_a_changed_jax_is_noticed(runtime):
    runtime({**full(TPU), "flax": "0.11"}, pip_changes={"jax": "0.12.0"})
    with pytest.raises(RequestError, match=r"pip has changed jax 0.10.2 to 0.12.0"):
        requirements.install()


def test_what_pip_says_is_one_line(runtime):
    errors = "WARNING: x\nERROR: Cannot install flax: conflict\nERROR: ResolutionImpossible\n"
    runtime({**full(TPU), "flax": "0.11"}, errors=errors)
    with pytest.raises(RequestError) as caught:
        requirements.install()
    assert str(caught.value) == "pip could not install flax: Cannot install flax: conflict"


def test_a_package_that_is_in_use_needs_a_restart(runtime, monkeypatch):
    runtime({**full(TPU), "plotly": "5.24.1"})
    monkeypatch.setattr(
        requirements, "_versions_of_loaded", lambda: {"plotly": str(compilers.version("plotly"))}
    )
    with pytest.raises(RequestError, match=r"plotly 5.24.1 to 99 was in use already: restart"):
        requirements.install()


def test_a_checkouts_environment_is_left_alone(runtime):
    calls = runtime({**full(TPU), "flax": None}, own=True)
    with pytest.raises(RequestError, match=r"this environment lacks flax>=0.12.6: pip install -e"):
        requirements.install()
    assert calls == []


@pytest.mark.parametrize(
    ("packages", "wanted"),
    [
        # Each runtime's own compiler is used; the one that it lacks comes from the same jax.
        (TPU, ["jax[cuda13-local]", "nvidia-cuda-nvcc", "nvidia-nvvm"]),
        (GPU, ["jax[tpu]"]),
        ({"jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.1.3"},
         ["jax[cuda13-local,tpu]", "nvidia-cuda-nvcc", "nvidia-nvvm"]),
    ],
)  # fmt: skip
def test_only_missing_compilers_are_brought(runtime, monkeypatch, packages, wanted):
    monkeypatch.setattr(
        compilers, "find",
        lambda t, find=compilers.find: find(t, installed=compilers.version),
    )  # fmt: skip
    calls = runtime(full(packages))
    requirements.install(with_compilers=True)
    ((asked, held),) = calls
    assert [re.split("[<;]", text)[0] for text in asked] == wanted
    assert {f"jax=={packages['jax']}", "numpy==2.1.3"} <= set(held)


def test_the_versions_of_this_very_environment_are_found():
    held = requirements._kept("")
    assert held["jax"] == compilers.version("jax")
    assert requirements._versions_of_loaded()["pytest"] == compilers.version("pytest")
