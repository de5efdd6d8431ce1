"""What 100,000 records cost: seconds and peak memory of each stage that goes through all of them.

    python benchmarks/many_records.py [--records=100000] [--repeats=5]

Writes a file of records as many runs on several machines would leave it, the same each time, and
does each stage in a new process: the best time of the repeats, and the largest resident memory.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console

from accel_bench import compare, record

# Platform, device as its driver names it, chip, what its fp32 matmul is faster by.
MACHINES = (
    ("cpu", "AMD EPYC 9B14", None, 1.0),
    ("cpu", "Intel(R) Xeon(R) CPU @ 2.20GHz", None, 0.7),
    ("gpu", "NVIDIA H100 80GB HBM3", "h100_sxm", 60.0),
    ("gpu", "NVIDIA A100-SXM4-80GB", "a100_80", 25.0),
    ("gpu", "Tesla T4", "t4", 6.0),
    ("tpu", "TPU v5 lite", "v5e", 40.0),
)
SIZES = (256, 512, 1024, 2048, 4096, 8192)
PRECISIONS = {"fp32": 1.0, "bf16": 2.5, "fp16": 2.5, "int8": 3.0}
AVX512 = ("bf16", "bitalg", "bw", "cd", "dq", "f", "fp16", "ifma", "vbmi", "vbmi2", "vl", "vnni",
          "vp2intersect", "vpopcntdq")  # fmt: skip
RECORDS_PER_RUN = 200  # about as many as one process writes before the next begins
BASE_FLOPS = 5e11  # per second, of the first machine in fp32


def plain_records(count: int, samples: int = 10) -> Iterator[dict[str, Any]]:
    """Records as JSON has them, by machine, run and case; about one in fifty went wrong."""
    rng = random.Random(0)
    for number in range(count):
        run, case = divmod(number, RECORDS_PER_RUN)
        if not case:
            env = _env(rng, run)
        platform, kind, chip, speed = MACHINES[run % len(MACHINES)]
        target = {
            "kind": "measured", "platform": platform, "device_kind": kind, "chip": chip,
            "num_devices": 1, "num_chips": 1.0 if chip else None, "attached": 1, "virtual": False,
        }  # fmt: skip
        plain = _case(rng, case, speed, samples)
        yield {
            "run_id": f"{run:012x}", "config_hash": f"{run % 20:012x}", **plain, "mesh": {},
            "target": target, "implementation": "xla", "env": env,
            "schema_version": record.SCHEMA_VERSION,
        }  # fmt: skip


def _env(rng: random.Random, run: int) -> dict[str, Any]:
    packages = {"jax": f"0.10.{run % 3}", "jaxlib": f"0.10.{run % 3}", "flax": "0.12.8",
                "optax": "0.2.8", "numpy": "2.4.6", "scipy": "1.17.1", "libtpu": None}  # fmt: skip
    cpu = {
        "model": MACHINES[run % 2][1], "cores": 8, "load_at_start": rng.random(),
        "caches": {"L1": 49152, "L2": 1048576, "L3": 33554432},
        "flags": ["avx", "avx2", *(f"avx512_{name}" for name in AVX512), "avx_vnni", "fma"],
    }  # fmt: skip
    return {
        "python": "3.12.1", "packages": packages, "os": "Linux 6.8.0 x86_64", "driver": None,
        "cpu": cpu, "memory_available": rng.randrange(1 << 33, 1 << 35),
        "settings": {"JAX_PLATFORMS": "cpu", "OPENBLAS_CORETYPE": "Haswell"},
        "git_commit": "0123456789ab", "compilation_cache": "off", "default_matmul_precision": None,
    }  # fmt: skip


def _case(rng: random.Random, case: int, speed: float, samples: int) -> dict[str, Any]:
    """Case, status, samples and facts of a record."""
    precision = list(PRECISIONS)[case % len(PRECISIONS)]
    if case % 2:
        width = 1 << (14 + case % 9)
        workload, params = "memory", {"bytes": width, "op": ("copy", "add", "triad")[case % 3]}
        work = {"flops": width // 4, "bytes": 2 * width}
        seconds = 2 * width / (5e10 * speed)
    else:
        size = SIZES[case % len(SIZES)]
        workload, params = "matmul", {"shape": str(size)}
        work = {"flops": 2 * size**3, "bytes": 12 * size**2}
        seconds = 2 * size**3 / (BASE_FLOPS * speed * PRECISIONS[precision])
    case_is = {"workload": workload, "params": params, "precision": precision}
    if rng.random() < 0.02:
        status = rng.choice(("oom", "timeout", "unsupported", "failed"))
        return {
            **case_is, "status": status, "reason": f"{status}: for a reason of some length",
            "samples_s": [], "compile_s": None, "first_call_s": None,
            "facts": {"work": work, "lower_s": rng.uniform(0.01, 0.05)},
        }  # fmt: skip
    facts = {
        "launch_queued_s": 4e-6 * rng.uniform(1, 1.2), "launch_blocking_s": 3e-5, "work": work,
        "inputs": {"distribution": "normal(0, 1)", "checked": "sampled rows and columns"},
        "compute_dtype": "float32", "lower_s": rng.uniform(0.01, 0.05),
        "memory": {"arguments": work["bytes"], "outputs": work["bytes"] // 2, "temporaries": 0,
                   "aliased": 0, "peak": work["bytes"], "needed": work["bytes"] * 3 // 2},
        "dot_operands": ["f32"], "error": rng.uniform(1e-7, 4e-7), "max_error": 1e-5,
        "calls_per_sample": rng.randrange(1, 400), "steps_per_call": 1,
        "linearity": rng.uniform(1.95, 2.05), "drift": 0.0,
        "flags": ["emulated"] if precision == "fp16" else [],
    }  # fmt: skip
    return {
        **case_is, "status": "ok", "reason": None,
        "samples_s": [seconds * rng.lognormvariate(0, 0.01) for _ in range(samples)],
        "compile_s": rng.uniform(0.1, 2.0), "first_call_s": 2 * seconds, "facts": facts,
    }  # fmt: skip


def write(path: Path, count: int) -> None:
    """Writes the file; each line is what the suite itself would write."""
    with path.open("w") as file:
        for plain in plain_records(count):
            file.write(json.dumps(plain) + "\n")


def write_pair(path: Path, count: int) -> list[Path]:
    """Writes two runs of one experiment, of half as many cases each, every case another one."""
    halves = [path.with_name("one.jsonl"), path.with_name("other.jsonl")]
    for number, half in enumerate(halves):
        with half.open("w") as file:
            for case, plain in enumerate(plain_records(count // 2)):
                name = {"matmul": "shape", "memory": "op"}[plain["workload"]]
                plain["params"][name] = f"n{case}={plain['params'][name]}"
                plain |= {"config_hash": "0" * 12, "run_id": f"{number:012x}"}
                file.write(json.dumps(plain) + "\n")
    return halves


def table(path: Path) -> int:
    """Reads both runs, pairs them and prints the tables."""
    console = Console(file=io.StringIO(), width=200)
    found = compare.compare([path.with_name("one.jsonl"), path.with_name("other.jsonl")], console)
    return 2 * len(found.rows)


def report(path: Path) -> int:
    """The same, and writes the report."""
    console = Console(file=io.StringIO(), width=200)
    outputs = compare.Outputs(html=path.with_name("report.html"))
    halves = [path.with_name("one.jsonl"), path.with_name("other.jsonl")]
    return 2 * len(compare.compare(halves, console, outputs=outputs).rows)


def start(path: Path) -> int:
    """Nothing: what a process costs that has only imported what it needs."""
    del path
    return 0


def read(path: Path) -> int:
    """Reads and keeps all records."""
    found = record.read(path)
    assert not found.problems, found.problems[0]
    return len(found.records)


# What is done with the file, one after the other; each in a process of its own.
STAGES: dict[str, Callable[[Path], int]] = {
    "start": start, "read": read, "table": table, "report": report
}  # fmt: skip


def do(stage: str, path: Path) -> None:
    """Does one stage and prints its seconds, peak memory in MB and number of records."""
    begun = time.perf_counter()
    count = STAGES[stage](path)
    seconds = time.perf_counter() - begun
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps([seconds, peak_mb, count]))


def main() -> None:
    """Prints what reading and comparing them takes."""
    parser = argparse.ArgumentParser(description="What many records cost")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stage", nargs=2, metavar=("STAGE", "FILE"), help="of this file only")
    options = parser.parse_args()
    if options.stage:
        do(options.stage[0], Path(options.stage[1]))
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / record.FILE_NAME
        write(path, options.records)
        write_pair(path, options.records)
        size = path.stat().st_size
        print(f"{options.records} records, {size / 1e6:.0f} MB, {size / options.records:.0f} each")
        for stage in STAGES:
            command = [sys.executable, __file__, "--stage", stage, str(path)]
            done = [
                json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                for _ in range(options.repeats)
            ]
            seconds, peak_mb = min(d[0] for d in done), max(d[1] for d in done)
            print(f"{stage:6} {seconds:6.2f} s, at most {peak_mb:5.0f} MB")


if __name__ == "__main__":
    main()
