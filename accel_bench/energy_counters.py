"""Where a machine counts energy: RAPL for processors, NVML for NVIDIA's GPUs. Imports no jax.

A counter's `read` gives joules since some moment; only differences mean anything. What cannot be
read is `Unknown`, with what a person can do about it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")
# No processor package sold draws more; a counter that says so counts something else.
MAX_PACKAGE_WATTS = 1000.0
# A vendor's board power is a limit that is kept within milliseconds, not at every instant.
OVER_BOARD_POWER = 1.1
SAMPLE_S = 0.02


class Unknown(Exception):
    """The energy cannot be told; the text says why, and what to do."""


@dataclass(frozen=True)
class Counter:
    """What counts the energy of the devices that a case uses.

    Attributes:
      source: what it is, in words.
      read: joules since some moment.
      limit_watts: power above which it cannot be right; None where no limit is known.
      running: what must be entered while it is read: an older GPU has no counter but a power
        reading, which a thread then adds up. Never while times are taken.
    """

    source: str
    read: Callable[[], float]
    limit_watts: float | None = None
    running: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


def find(
    platform: str, ordinals: Sequence[int], board_watts: float | None, processes: int = 1
) -> Counter:
    """The counter for devices of this process.

    Args:
      platform: `cpu`, `gpu` or `tpu`.
      ordinals: GPUs: numbers of the devices used, as CUDA counts them in this process.
      board_watts: of one of them, by the chip table; None where that is not known.
      processes: that run the case together.

    Raises:
      Unknown: there is none.
    """
    if processes > 1:
        raise Unknown(f"{processes} processes run the case: energy is told of one process only")
    if platform == "cpu":
        return rapl()
    if platform == "tpu":
        raise Unknown("no public counter of a TPU's energy is known")
    from accel_bench import detect

    if detect.gpu_backend() != "cuda":
        raise Unknown(
            "no counter is read for AMD GPUs: only NVIDIA's (NVML) and processors' (RAPL)"
        )
    limit = board_watts and board_watts * len(ordinals) * OVER_BOARD_POWER
    return nvml([_pci_bus_id(ordinal) for ordinal in ordinals], limit)


def rapl(root: Path | None = None) -> Counter:
    """The processor packages' counters, added up: all that runs on them counts.

    Linux lists a package as a zone and its parts (cores, the memory's controller) as zones within
    it. Only packages are taken, so that nothing counts twice; memory modules are not in them. Left
    out are the whole platform's zone (`psys`) and the second view of a package (`intel-rapl-mmio`).
    AMD's processors are listed by the same names.

    Args:
      root: where Linux lists them.

    Raises:
      Unknown: there are none, or this user may not read them.
    """
    root = root or POWERCAP
    zones = []
    for zone in sorted(root.glob("intel-rapl:*")):
        with contextlib.suppress(OSError):
            if ":" not in zone.name.partition(":")[2] and _text(zone, "name").startswith("package"):
                zones.append(zone)
    if not zones:
        why = "it is Linux's"
        if sys.platform == "linux":
            why = "virtual machines and containers hide it: run on the machine itself"
        raise Unknown(f"no RAPL: {root}/intel-rapl:0 is not there; {why}")
    try:
        packages = [_Package(zone) for zone in zones]
    except PermissionError as error:
        raise Unknown(
            f"no RAPL: {error.filename} is not readable; run as root, or once "
            f"sudo chmod a+r {root}/intel-rapl:*/energy_uj"
        ) from error
    except (OSError, ValueError) as error:
        raise Unknown(f"no RAPL: {zones[0]} cannot be read: {error}") from error
    count = f"{len(packages)} processor package{'s' if len(packages) > 1 else ''}"

    def read() -> float:
        try:
            return sum(package.joules() for package in packages)
        except (OSError, ValueError) as error:
            raise Unknown(f"RAPL can no longer be read: {error}") from error

    return Counter(f"RAPL, {count}", read, MAX_PACKAGE_WATTS * len(packages))


class _Package:
    """A counter of microjoules that begins again at 0 when it is full."""

    def __init__(self, zone: Path) -> None:
        self._zone = zone
        self._range = int(_text(zone, "max_energy_range_uj"))
        self._last = int(_text(zone, "energy_uj"))
        self._total = 0

    def joules(self) -> float:
        """Since it was made; must be asked at least once in each turn (minutes)."""
        now = int(_text(self._zone, "energy_uj"))
        step = now - self._last
        self._total += step if step >= 0 else step + self._range
        self._last = now
        return self._total * 1e-6


def _text(zone: Path, name: str) -> str:
    return (zone / name).read_text().strip()


def nvml(bus_ids: Sequence[str], limit_watts: float | None = None) -> Counter:
    """The energy counters of these GPUs' boards added up; of older ones their power, added up.

    Args:
      bus_ids: their places on the PCI bus. Their numbers in CUDA are in another order than NVML's.
      limit_watts: see `Counter`.

    Raises:
      Unknown: NVML is not installed, or does not tell.
    """
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise Unknown(
            "nvidia-ml-py is not installed: pip install nvidia-ml-py, or the suite's extra [energy]"
        ) from error
    try:
        pynvml.nvmlInit()
        boards = [pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()) for bus_id in bus_ids]
        if any(_is_split(pynvml, board) for board in boards):
            raise Unknown("the GPU is split (MIG): its counter is of the whole board")
    except pynvml.NVMLError as error:
        raise Unknown(f"NVML does not tell the GPU's energy: {error}") from error
    count = f"{len(boards)} GPU{'s' if len(boards) > 1 else ''}"

    def total(function: Callable[[Any], int]) -> float:
        """The sum over the boards of millijoules or milliwatts, in whole ones."""
        try:
            return sum(function(board) for board in boards) * 1e-3
        except pynvml.NVMLError as error:
            raise Unknown(f"NVML does not tell the GPU's energy: {error}") from error

    with contextlib.suppress(Unknown):
        total(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        return Counter(
            f"NVML's energy counter, {count}",
            lambda: total(pynvml.nvmlDeviceGetTotalEnergyConsumption),
            limit_watts,
        )
    total(pynvml.nvmlDeviceGetPowerUsage)
    sampler = _Sampler(lambda: total(pynvml.nvmlDeviceGetPowerUsage))
    source = f"NVML's power every {SAMPLE_S * 1e3:g} ms, {count}"
    return Counter(source, sampler.joules, limit_watts, sampler.running)


def _is_split(pynvml: Any, board: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(board)[0])
    except pynvml.NVMLError:  # one that cannot be
        return False


class _Sampler:
    """Adds up power over time, in a thread, while it is running."""

    def __init__(self, watts: Callable[[], float]) -> None:
        self._watts = watts
        self._joules = 0.0

    def joules(self) -> float:
        """So far."""
        return self._joules

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Samples until left. A reading that fails ends it: the counter then stands still."""
        done = threading.Event()
        thread = threading.Thread(target=self._sample, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _sample(self, done: threading.Event) -> None:
        with contextlib.suppress(Unknown):
            then, before = time.perf_counter(), self._watts()
            while not done.wait(SAMPLE_S):
                now, watts = time.perf_counter(), self._watts()
                self._joules += (now - then) * (watts + before) / 2
                then, before = now, watts


def _pci_bus_id(ordinal: int) -> str:
    """Where a GPU of this process is on the PCI bus, by CUDA's driver.

    Raises:
      Unknown: the driver does not say.
    """
    text = ctypes.create_string_buffer(32)
    device = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Unknown(f"CUDA's driver does not say which GPU is used: {error}") from error
    if (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        or cuda.cuDeviceGetPCIBusId(text, len(text), device)
    ):
        raise Unknown(f"CUDA's driver does not say where GPU {ordinal} is")
    return text.value.decode()
