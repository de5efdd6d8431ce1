"""Data between host and device, and how much of it computing hides."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from accel_bench.workloads.base import Device, HostCall, HostWorkload, SkippedCase
from accel_bench.workloads.memory import uniform
from accel_bench.workloads.params import Transfer

_WIDTH = Transfer.ROW // 4


def build(params: Transfer, precision: str, mesh: Mesh) -> HostWorkload:
    """Copies of `params.bytes` between pageable host memory and one device.

    Where the device is the CPU itself, a transfer is a copy within main memory; the row says so.

    Raises:
      SkippedCase: there is a mesh.
    """
    del precision
    if mesh.size > 1:
        raise SkippedCase("a transfer is between the host and one device: it has no mesh")
    device = mesh.devices.flat[0]
    shared = device.platform == "cpu"
    setups = {"h2d": _host_to_device, "d2h": _device_to_host, "overlap": _overlap}
    setup = setups[params.direction]
    return HostWorkload(
        setup=lambda seed: setup(params, device, _host_values(seed, params.bytes)),
        work={"bytes": params.bytes},
        # Source, device copies, result and the comparison of the two, all at once on a CPU.
        needed_bytes=5 * params.bytes,
        # Where both ends are in main memory, a small copy never leaves the caches.
        working_set=2 * params.bytes if shared else None,
        max_error=1e-5 if params.direction == "overlap" else 0.0,
        facts={
            "inputs": {"distribution": "uniform(0, 1)", "host_memory": "pageable"},
            "host_and_device_share_memory": shared,
        },
    )


def _host_values(seed: int, count: int) -> np.ndarray:
    return uniform(np.random.default_rng(seed), count // 4)


def _mismatch(values: np.ndarray, copy: np.ndarray) -> float:
    if np.shares_memory(values, copy):
        return 1.0  # nothing was moved
    return float(np.mean(values != copy))


def _host_to_device(params: Transfer, device: Device, values: np.ndarray) -> Mapping[str, HostCall]:
    return {
        "h2d": HostCall(
            call=lambda _: jax.device_put(values, device).block_until_ready(),
            error=lambda out: _mismatch(values, np.asarray(out)),
        )
    }


def _device_to_host(params: Transfer, device: Device, values: np.ndarray) -> Mapping[str, HostCall]:
    resident = jax.device_put(values, device)
    # jax keeps the host's copy of an array, so each call gets an array that has none yet.
    fresh = jax.jit(jnp.copy)
    shared = device.platform == "cpu"

    def fetch(array: jax.Array) -> np.ndarray:
        return np.array(array, copy=True) if shared else np.asarray(array)

    return {
        "d2h": HostCall(
            call=fetch,
            prepare=lambda: fresh(resident).block_until_ready(),
            error=lambda out: _mismatch(values, out),
        )
    }


@jax.jit
def _compute(x: jax.Array, weights: jax.Array, repeats: jax.Array) -> jax.Array:
    """Matrix products in a chain, as many as asked for: work that needs little memory traffic."""
    return lax.fori_loop(0, repeats, lambda _, y: y @ weights, x)


def _overlap(params: Transfer, device: Device, values: np.ndarray) -> Mapping[str, HostCall]:
    """Chunks sent while the ones before are computed on, beside the same one after the other."""
    chunks = list(values.reshape(params.chunks, -1, _WIDTH))
    # A rotation keeps the size of the numbers, however long the chain.
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((_WIDTH, _WIDTH)))
    weights = jax.device_put(rotation.astype(np.float32), device)
    resident = [jax.device_put(chunk, device) for chunk in chunks]
    repeats = jax.device_put(np.int32(_balance(chunks[0], weights, device)), device)

    def compute(x: jax.Array) -> jax.Array:
        return _compute(x, weights, repeats)

    def transfer_only(_):
        for chunk in chunks:
            jax.device_put(chunk, device).block_until_ready()

    def compute_only(_):
        return [compute(x).block_until_ready() for x in resident]

    def serial(_):
        return [compute(jax.device_put(chunk, device).block_until_ready()).block_until_ready()
                for chunk in chunks]  # fmt: skip

    def pipelined(_):
        results = []
        coming = jax.device_put(chunks[0], device)
        for following in itertools.chain(chunks[1:], [None]):
            results.append(compute(coming))
            if following is not None:
                coming = jax.device_put(following, device)
        return jax.block_until_ready(results)

    def error(results: list[jax.Array]) -> float:
        turned = rotation.astype(np.float64)
        expected = chunks[-1][:8].astype(np.float64) @ np.linalg.matrix_power(turned, int(repeats))
        difference = np.asarray(results[-1][:8], np.float64) - expected
        return float(np.linalg.norm(difference) / np.linalg.norm(expected))

    return {
        "pipelined": HostCall(pipelined, error=error),
        "serial": HostCall(serial),
        "transfer_only": HostCall(transfer_only),
        "compute_only": HostCall(compute_only),
    }


def _balance(chunk: np.ndarray, weights: jax.Array, device: Device) -> int:
    """Products per chunk that take about as long as sending it: most can be hidden then."""
    x = jax.device_put(chunk, device)

    def seconds(repeats: int) -> float:
        count = jax.device_put(np.int32(repeats), device)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            _compute(x, weights, count).block_until_ready()
            times.append(time.perf_counter() - start)
        return min(times)

    def sending() -> float:
        start = time.perf_counter()
        jax.device_put(chunk, device).block_until_ready()
        return time.perf_counter() - start

    seconds(1)  # compiles
    each = max(1e-9, (seconds(9) - seconds(1)) / 8)
    return max(1, min(64, round(min(sending() for _ in range(3)) / each)))
