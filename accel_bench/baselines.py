"""The same matrix product through other libraries, so that XLA can be compared with them.

Inputs have the same distribution, drawn by NumPy from the same seed. To add a library, add one
function and one entry to `LIBRARIES` (and its name to `accel_bench.cases.BASELINES`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accel_bench import detect
from accel_bench.cases import Case
from accel_bench.precision import lookup
from accel_bench.workloads.base import HostCall, HostWorkload, UnsupportedCase, relative_error

_CHECKED = 48


def build_baseline(case: Case) -> tuple[HostWorkload, str, str]:
    """The case's matrix product by the library it names.

    Returns:
      The workload, the platform it runs on and that device's name.

    Raises:
      UnsupportedCase: the library is not installed or has no such precision.
    """
    batch, m, k, n = case.typed_params().sizes
    entry = lookup(case.precision)
    library = LIBRARIES[case.implementation](case.precision)
    convert, multiply, to_numpy = library.convert, library.multiply, library.to_numpy

    def setup(seed: int) -> Mapping[str, HostCall]:
        rng = np.random.default_rng(seed)
        lead = (batch,) if batch > 1 else ()
        a = rng.standard_normal((*lead, m, k), dtype=np.float32)
        b = rng.standard_normal((*lead, k, n), dtype=np.float32)
        rows, columns = (np.unique(np.linspace(0, d - 1, _CHECKED).astype(int)) for d in (m, n))
        expected = a[..., rows, :].astype(np.float64) @ b[..., columns].astype(np.float64)
        a, b = convert(a), convert(b)

        def error(out: Any) -> float:
            return relative_error(to_numpy(out)[..., rows, :][..., columns], expected)

        return {case.implementation: HostCall(lambda _: multiply(a, b), error=error)}

    item = np.dtype(np.float32).itemsize
    moved = batch * (m * k + k * n + m * n) * item
    workload = HostWorkload(
        setup=setup,
        work={"flops": 2 * batch * m * k * n, "bytes": moved},
        needed_bytes=2 * moved,
        max_error=entry.max_error,
        facts={"inputs": {"distribution": "normal(0, 1)"}, **library.facts},
    )
    return workload, library.platform, library.device_kind or detect.cpu_model()


@dataclass(frozen=True)
class _Library:
    convert: Callable[[np.ndarray], Any]
    multiply: Callable[[Any, Any], Any]  # returns when the product is there
    to_numpy: Callable[[Any], np.ndarray]
    facts: dict[str, Any]
    platform: str = "cpu"
    device_kind: str | None = None


def _require_installed(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UnsupportedCase(f"{package} is not installed: {extra}")


def _require_fp32(precision: str, library: str) -> None:
    if precision not in ("fp32", "fp32_default"):
        raise UnsupportedCase(f"{library} multiplies matrices in fp32 only, not in {precision}")


def _numpy(precision: str) -> _Library:
    _require_fp32(precision, "NumPy's BLAS")
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # pyright: ignore
    facts = {"library": f"numpy {np.__version__}, {blas.get('name')} {blas.get('version')}"}
    return _Library(lambda x: x, np.matmul, lambda x: x, facts)


def _torch(precision: str) -> _Library:
    _require_installed("torch", "pip install 'accel-bench[baselines]'")
    import torch

    dtypes: dict[str, Any] = {
        "fp32": torch.float32,
        "fp32_default": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
    }
    if precision not in dtypes:
        raise UnsupportedCase(f"no {precision} baseline in PyTorch: it has {', '.join(dtypes)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "fp32":
        torch.backends.cuda.matmul.allow_tf32 = False

    def multiply(a: Any, b: Any) -> Any:
        out = torch.matmul(a, b)
        if device == "cuda":
            torch.cuda.synchronize()
        return out

    def convert(x: np.ndarray) -> Any:
        return torch.from_numpy(x).to(device=device, dtype=dtypes[precision])

    facts = {"library": f"torch {torch.__version__}", "threads": torch.get_num_threads()}
    return _Library(
        convert,
        multiply,
        lambda x: x.float().cpu().numpy(),
        facts,
        platform="gpu" if device == "cuda" else "cpu",
        device_kind=torch.cuda.get_device_name() if device == "cuda" else None,
    )


def _cupy(precision: str) -> _Library:
    _require_installed("cupy", "pip install cupy-cuda13x, on a machine with an NVIDIA GPU")
    import cupy  # pyright: ignore

    if precision not in ("fp32", "fp16"):
        raise UnsupportedCase(f"no {precision} baseline in CuPy: it has fp32 and fp16")
    dtype = {"fp32": np.float32, "fp16": np.float16}[precision]

    def multiply(a: Any, b: Any) -> Any:
        out = cupy.matmul(a, b)
        cupy.cuda.Device().synchronize()
        return out

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return _Library(
        lambda x: cupy.asarray(x, dtype),
        multiply,
        cupy.asnumpy,
        {"library": f"cupy {cupy.__version__}"},
        platform="gpu",
        device_kind=properties["name"].decode(),
    )


LIBRARIES: dict[str, Callable[[str], _Library]] = {
    "numpy": _numpy,
    # The same call: the worker of this case is started with one BLAS thread.
    "numpy_1thread": _numpy,
    "torch": _torch,
    "cupy": _cupy,
}
