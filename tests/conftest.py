"""Settings that must be in force before jax is imported, and how tests call the command line."""

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
# Eight virtual devices, so that every sharding runs here.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

ROOT = Path(__file__).resolve().parent.parent


def assert_refused(done: subprocess.CompletedProcess, message: str, folder: Path) -> None:
    """A wrong request is one line on standard error, exit status 2, and nothing written."""
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line
    assert list(folder.iterdir()) == []


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
