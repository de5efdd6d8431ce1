"""What is attached to this machine, found without starting any jax back end.

Starting a back end in order to learn that it is absent is slow, takes the accelerator away from
others and, for some, kills the process. The operating system's device files and the installed
plugins' names tell as much.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from dataclasses import dataclass
from pathlib import Path

from accel_bench.errors import RequestError

PLATFORMS = ("cpu", "gpu", "tpu")
_GOOGLE_PCI_VENDOR = "0x1ae0"
# PCI device id -> chip table name (jax, jax/_src/hardware_utils.py).
_TPU_PCI_DEVICES = {
    "0x0027": "v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "tpu7x",
}
_INSTALL = {"gpu": "pip install 'jax[cuda13]'", "tpu": "pip install 'jax[tpu]'"}


@dataclass(frozen=True)
class Attached:
    """What the operating system shows.

    Attributes:
      counts: platform -> chips seen; 0 where none.
      plugins: platform -> whether it is there and the package that lets jax use it is installed.
      name: platform -> what to call it in a message.
    """

    counts: dict[str, int]
    plugins: dict[str, bool]
    name: dict[str, str]

    def describe(self) -> str:
        """What is there, in words, for a message."""
        found = [self.name[p] for p in ("tpu", "gpu") if self.counts[p]]
        return ", ".join([*found, f"the CPU ({self.name['cpu']})"])


def cpu_model() -> str:
    """The CPU's name as the operating system gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else os.uname().machine


def cpu_flags() -> frozenset[str]:
    """The CPU's instruction set extensions as Linux lists them; empty where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    return frozenset(match.group(1).split()) if match else frozenset()


def cpu_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_caches() -> dict[str, int]:
    """Cache level (`L1`, `L2`, `L3`) -> bytes of one instance; empty where Linux shows none."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            size = (index / "size").read_text().strip()
            level = "L" + (index / "level").read_text().strip()
        except OSError:
            continue
        factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(size[-1], 1)
        caches[level] = int(size.rstrip("KMG")) * factor
    return caches


def memory_available() -> int | None:
    """Bytes of main memory that can be used without swapping; None where it is not known."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _installed(pattern: str) -> bool:
    names = (d.metadata["Name"] or "" for d in importlib.metadata.distributions())
    return any(re.fullmatch(pattern, name.replace("_", "-")) for name in names)


def _gpus() -> tuple[int, str]:
    nodes = [p for p in Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()]
    if nodes:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        count = len(nodes)
        if visible is not None:
            count = min(count, len([v for v in visible.split(",") if v.strip() not in ("", "-1")]))
        models = []
        for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            match = re.search(r"Model:\s*(.+)", info.read_text())
            models += [match.group(1).strip()] if match else []
        name = models[0] if models else "NVIDIA GPU"
        return count, f"{count} x {name}"
    if Path("/dev/dxg").exists():  # Windows Subsystem for Linux
        return 1, "a GPU behind WSL2"
    amd = list(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"))
    count = sum(1 for p in amd if p.read_text().strip() not in ("", "0"))
    return count, f"{count} x AMD GPU"


def gpu_backend() -> str:
    """jax's name of the back end for this machine's GPUs: `cuda` or `rocm`."""
    amd = Path("/dev/kfd").exists() and not list(Path("/dev").glob("nvidia[0-9]*"))
    return "rocm" if amd else "cuda"


def _tpus() -> tuple[int, str]:
    chips = []
    for vendor in Path("/sys/bus/pci/devices").glob("*/vendor"):
        try:
            if vendor.read_text().strip() == _GOOGLE_PCI_VENDOR:
                chips.append(_TPU_PCI_DEVICES.get((vendor.parent / "device").read_text().strip()))
        except OSError:
            continue
    chips = [chip for chip in chips if chip]
    count = len(chips)
    if not count:
        count = len(list(Path("/dev").glob("accel[0-9]*")))
    return count, f"{count} x TPU {chips[0] if chips else ''}".rstrip()


def attached() -> Attached:
    """Looks at the machine; starts nothing."""
    gpus, gpu_name = _gpus()
    tpus, tpu_name = _tpus()
    return Attached(
        counts={"cpu": 1, "gpu": gpus, "tpu": tpus},
        plugins={
            "cpu": True,
            "gpu": bool(gpus) and _installed(r"jax-(cuda|rocm)\d*-plugin"),
            "tpu": bool(tpus) and _installed("libtpu(-nightly)?"),
        },
        name={
            "cpu": f"{cpu_model()}, {cpu_cores()} cores",
            "gpu": gpu_name,
            "tpu": tpu_name,
        },
    )


def choose(device: str, found: Attached) -> tuple[str, str]:
    """The platform to measure on, and a sentence that says so.

    Args:
      device: `auto`, `cpu`, `gpu` or `tpu`.
      found: what is attached.

    Raises:
      RequestError: a platform was named that is absent, or whose jax plugin is not installed.
    """
    if device == "auto":
        wanted = os.environ.get("JAX_PLATFORMS", "").split(",")[0]
        if wanted:
            named = {"cuda": "gpu", "rocm": "gpu"}.get(wanted, wanted)
            if named not in PLATFORMS:
                raise RequestError(
                    f"JAX_PLATFORMS={wanted} names a platform this suite does not know: "
                    "unset it or choose one of cpu, cuda, rocm, tpu"
                )
            platform, why = choose(named, found)
            return platform, f"{why} (JAX_PLATFORMS={os.environ['JAX_PLATFORMS']} is set)"
        notes = []
        for platform in ("tpu", "gpu"):
            if found.counts[platform] and found.plugins[platform]:
                return platform, f"measuring on {found.name[platform]}"
            if found.counts[platform]:
                notes.append(
                    f"; {found.name[platform]} is attached but jax has no plugin for it: "
                    f"{_INSTALL[platform]}"
                )
        return "cpu", f"measuring on the CPU: {found.name['cpu']}" + "".join(notes)
    if device not in PLATFORMS:
        raise RequestError(f"unknown device {device!r}: choose auto, cpu, gpu, tpu or none")
    if not found.counts[device]:
        raise RequestError(
            f"--device={device} was asked for, but no {device.upper()} is attached: this machine "
            f"has {found.describe()}; use --device=auto or --device=cpu"
        )
    if not found.plugins[device]:
        raise RequestError(
            f"--device={device} was asked for and {found.name[device]} is attached, but jax has "
            f"no plugin for it: {_INSTALL[device]}"
        )
    return device, f"measuring on {found.name[device]}"


def tpu_holders() -> list[str]:
    """`name (pid N)` of each other process that has a TPU's device file open."""
    holders = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
            pid = link.parts[2]
            if re.match(r"/dev/(accel|vfio/)\d", target) and int(pid) != os.getpid():
                holders.append(f"{Path('/proc', pid, 'comm').read_text().strip()} (pid {pid})")
        except OSError:
            continue
    return sorted(set(holders))
