"""What the suite costs around the timed work: time of a run of three matmul cases, and memory.

    python benchmarks/overhead.py

Prints the seconds of the whole command less those in which samples were taken, and by how much the
worker's largest resident memory exceeds that of a bare script for the same case.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The largest case as anybody would write it.
BARE = """
import jax
a = jax.jit(lambda k: jax.random.normal(k, (8192, 8192)))(jax.random.key(0))
b = jax.jit(lambda k: jax.random.normal(k, (8192, 8192)))(jax.random.key(1))
jax.jit(lambda a, b: a @ b)(a, b).block_until_ready()
"""
MAIN = Path(__file__).resolve().parent.parent / "main.py"


def run(shapes: tuple[str, ...], seconds: float) -> tuple[float, list[dict]]:
    """Wall seconds of a run of these matmuls, and its records."""
    with tempfile.TemporaryDirectory() as place:
        cases = {"it": {"workload": "matmul", "shape": shapes}}
        start = time.perf_counter()
        subprocess.run(
            [
                sys.executable, str(MAIN), "run", "--config=smoke", "--device=cpu",
                f"--config.cases={cases}", f"--config.measure.max_seconds={seconds}",
                f"--workdir={place}/w",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        elapsed = time.perf_counter() - start
        lines = Path(place, "w", "records.jsonl").read_text().splitlines()
        return elapsed, [json.loads(line) for line in lines]


def peak_mib() -> float:
    """Largest resident memory of any child so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    """Prints the share of a run that is not timed work."""
    for attempt in range(3):
        elapsed, rows = run(("512", "1024", "2048"), 0.2)
        timed = sum(sum(r["samples_s"]) * r["facts"]["calls_per_sample"] for r in rows)
        print(f"run {attempt}: {elapsed:.2f} s in all, {elapsed - timed:.2f} s around the samples")
    subprocess.run([sys.executable, "-c", BARE], check=True, capture_output=True)
    bare = peak_mib()
    run(("8192",), 1.0)
    print(
        f"memory at most, matmul 8192 in fp32: {bare:.0f} MiB in a bare script, {peak_mib():.0f} "
        f"MiB in the suite: {peak_mib() - bare:.0f} MiB more"
    )


if __name__ == "__main__":
    main()
