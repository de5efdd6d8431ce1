"""Settings that must be in force before jax is imported, and how tests call the command line."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from accel_bench import compilers

# Compilers for other accelerators may be loaded here too; what they make is kept nowhere.
os.environ.update(compilers.environ())
_CACHE = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = _CACHE.name
# Eight virtual devices, so that every sharding runs here. What LLVM does to code that runs for
# milliseconds costs half of the tests' time and changes no program that they look at; runs that are
# started as a user starts them compile as a user's do.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)

ROOT = Path(__file__).resolve().parent.parent


def assert_refused(done: subprocess.CompletedProcess, message: str, folder: Path) -> None:
    """A wrong request is one line on standard error, exit status 2, and nothing written."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line
    assert list(folder.iterdir()) == []


@pytest.fixture(autouse=True)
def machine(request, tmp_path_factory):
    """A test that is marked `alone` times something: no other one runs beside it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    import fcntl

    shared = tmp_path_factory.getbasetemp().parent
    with contextlib.ExitStack() as files:
        gate, lock = (files.enter_context((shared / n).open("w")) for n in ("gate", "lock"))
        # Who waits for the machine holds the gate, so that the others do not go on and on.
        fcntl.flock(gate, fcntl.LOCK_EX)
        alone = request.node.get_closest_marker("alone")
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@pytest.fixture
def main_py(tmp_path):
    """Runs `python main.py ...` in an empty directory; returns the finished process."""

    def run(*arguments: str, timeout: float = 300, **environ: str) -> subprocess.CompletedProcess:
        settings = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
        return subprocess.run(
            [sys.executable, str(ROOT / "main.py"), *arguments],
            cwd=tmp_path,
            env={**settings, **environ},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


# Starts the command line for each line on standard input: a process in which all is imported forks.
_FORKING = """
import json, os, sys
sys.path.insert(0, {root!r})
import main
from accel_bench import api, compare, listing, plan, tables
for line in sys.stdin:
    request = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(request["cwd"])
    for number, path in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.argv[:] = ["main.py", *request["arguments"]]
    main.main()
"""


@pytest.fixture(scope="session")
def _forking():
    settings = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    code = _FORKING.format(root=str(ROOT))
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process


@pytest.fixture
def quick_main_py(_forking, tmp_path, tmp_path_factory):
    """The same as `main_py` without half a second of imports, for requests that start nothing."""

    def run(*arguments: str) -> subprocess.CompletedProcess:
        said = tmp_path_factory.mktemp("said")
        files = {name: str(said / name) for name in ("stdout", "stderr")}
        request = {"cwd": str(tmp_path), "arguments": arguments, **files}
        _forking.stdin.write(json.dumps(request) + "\n")
        _forking.stdin.flush()
        status = int(_forking.stdout.readline())
        stdout, stderr = (Path(file).read_text() for file in files.values())
        return subprocess.CompletedProcess(arguments, status, stdout, stderr)

    return run
