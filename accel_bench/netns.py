"""Hosts on one machine: Linux network namespaces, joined by links of a set speed.

Each member is a namespace with one network card, `eth0`, and its own answer to the machine's host
name. The cards lead to a bridge in a namespace of its own, so that nothing shows among the
machine's own links and all links go when the namespaces go:

    member 0: eth0 ──tbf      tbf── m0 ┐
    member 1: eth0 ──tbf      tbf── m1 ┼ hub: bridge
    member 2: eth0 ──tbf      tbf── m2 ┘

A token bucket (`tc tbf`) limits what leaves an interface: on `eth0` what the member sends, on the
hub's end what it receives.

All that a network leaves on the machine carries its token, a random word: the namespaces, their
folders in /etc/netns and its lock file, which is held locked while the owner lives. A token whose
lock is free is therefore what a killed process left, and `clear_leftovers` removes it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from accel_bench.errors import RequestError

UNLIMITED = "unlimited"

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)")
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_MIN_RATE, _MAX_RATE = 8e3, 1e12  # what tc takes, with the burst and the queue below
# What may pass at once after a pause. A timer that wakes up late by less loses nothing; and from
# 1 Gbit/s on the kernel's largest segment, 64 KB, fits and need not be cut up.
_BURST_S = 0.6e-3
_MIN_BURST_BYTES = 32 * 1024
# What may wait; more is dropped. The cap only keeps the number inside tc's 32 bits.
_QUEUE_S = 0.1
_MAX_QUEUE_BYTES = 1 << 28

_SUBNET = ipaddress.ip_network("10.77.0.0/16")  # seen inside the namespaces only
_PREFIX = "accel_bench"
_TOKEN = re.compile("[0-9a-f]{8}")
_NAMESPACES = Path("/var/run/netns")  # where `ip netns` keeps them
_HOSTS = Path("/etc/netns")  # `ip netns exec NAME` lays the files of NAME/ over those in /etc
_LOCKS = Path("/run") / _PREFIX

_FAILED_LINE = re.compile(r"Command failed -:(\d+)")  # of a batch; what is wrong stands above it
_COMMAND_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


class NetworkError(Exception):
    """A network could not be built or removed; the text is one line that says why."""


def parse_rate(text: str) -> float | None:
    """The bits per second that `100mbit` or `2.5gbit` stands for; None for `unlimited`.

    Raises:
      RequestError: it is neither.
    """
    if text == UNLIMITED:
        return None
    match = _RATE.fullmatch(text)
    rate = float(match[1]) * _BITS[match[2]] if match else 0.0
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise RequestError(
            f"link {text!r} is no rate: write {UNLIMITED}, or a rate between 8kbit and 1000gbit "
            "such as 100mbit or 2.5gbit"
        )
    return float(round(rate))


def _burst(bytes_per_s: float) -> int:
    return max(_MIN_BURST_BYTES, int(bytes_per_s * _BURST_S))


def burst_bytes(link: str) -> int:
    """Bytes that a card of this rate may pass at once after a pause; 0 without a limit."""
    rate = parse_rate(link)
    return _burst(rate / 8) if rate else 0


def unavailable() -> str | None:
    """Why networks cannot be built here; None where they can. Builds a small one to know."""
    if sys.platform != "linux":
        return f"network namespaces need Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [name for name in ("ip", "tc") if not shutil.which(name)]:
        return f"network namespaces need iproute2; not found: {', '.join(missing)}"
    try:
        with Network(1, "1gbit") as network:
            _run([*network.command(0), "true"])
    except NetworkError as error:
        return str(error)
    return None


class Network:
    """Members 0 to count - 1, each able to reach every other. Lives until `close`.

    Attributes:
      link: how fast each member can send, and receive, as it was asked for.
      addresses: each member's IPv4 address, to which the host name resolves inside it.
    """

    def __init__(self, count: int, link: str) -> None:
        """Builds it, after removing what killed processes left.

        Args:
          count: how many members.
          link: what `parse_rate` reads.

        Raises:
          RequestError: the count or the link makes no sense.
          NetworkError: a step failed; what the steps before it made is gone.
        """
        rate = parse_rate(link)
        if count < 1:
            raise RequestError(f"a network of {count} members: expected at least 1")
        clear_leftovers()
        self.link = link
        self.addresses = [str(_SUBNET[index + 1]) for index in range(count)]
        self._path, self._lock = _new_lock()
        try:
            self._build(rate)
        except BaseException:  # an interrupt too
            self.close()
            raise

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def command(self, index: int) -> list[str]:
        """What to put before a command line so that it runs inside a member."""
        return ["ip", "netns", "exec", self._member(index)]

    def close(self) -> None:
        """Ends what still runs inside, and removes everything. Closing again does nothing.

        Raises:
          NetworkError: something would not go; closing again tries again.
        """
        try:
            self._close()
        except KeyboardInterrupt:
            self._close()  # one more Ctrl-C by an impatient user must not leave half of it
            raise

    def _close(self) -> None:
        if self._lock is not None:
            _remove(self._path.stem)
            lock, self._lock = self._lock, None
            _drop_lock(self._path, lock)

    def _member(self, index: int) -> str:
        return f"{_PREFIX}-{self._path.stem}-{range(len(self.addresses))[index]}"

    def _build(self, rate: float | None) -> None:
        hub = f"{_PREFIX}-{self._path.stem}-hub"
        members = [self._member(index) for index in range(len(self.addresses))]
        for member, address in zip(members, self.addresses, strict=True):
            _write_hosts(member, address)
        _batch(["ip"], [f"netns add {name}" for name in [*members, hub]])
        _batch(["ip", "-n", hub], _hub_links(members))
        for member, address in zip(members, self.addresses, strict=True):
            _batch(["ip", "-n", member], _member_links(address))
        # Last, after the members' ends: they find a carrier then, and forward at once.
        _batch(["ip", "-n", hub], [f"link set m{index} up" for index in range(len(members))])
        if rate is not None:
            for member in members:
                _batch(["tc", "-n", member], [_limit("eth0", rate)])
            _batch(["tc", "-n", hub], [_limit(f"m{index}", rate) for index in range(len(members))])


def clear_leftovers() -> int:
    """Removes the networks of processes that were killed; counts them. Spares the living ones.

    Raises:
      NetworkError: one would not go.
    """
    cleared = 0
    for path in _lock_folder().glob("*.lock"):
        if not _TOKEN.fullmatch(path.stem):
            continue
        lock = _take_lock(path, os.O_RDWR)
        if lock is None:
            continue
        try:
            _remove(path.stem)
        except BaseException:
            os.close(lock)  # free for whoever tries next
            raise
        _drop_lock(path, lock)
        cleared += 1
    return cleared


def _hub_links(members: Iterable[str]) -> list[str]:
    lines = ["link add hub type bridge", "link set hub up"]
    for index, member in enumerate(members):
        lines.append(f"link add m{index} type veth peer name eth0 netns {member}")
        lines.append(f"link set m{index} master hub")
    return lines


def _member_links(address: str) -> list[str]:
    return [
        "link set lo up",
        f"address add {address}/{_SUBNET.prefixlen} dev eth0",
        "link set eth0 up",
    ]


def _limit(interface: str, rate: float) -> str:
    """The tc line that limits what leaves an interface to a rate in bits per second."""
    bytes_per_s = rate / 8
    burst = _burst(bytes_per_s)
    queue = min(_MAX_QUEUE_BYTES, burst + int(bytes_per_s * _QUEUE_S))
    return f"qdisc add dev {interface} root tbf rate {rate:.0f}bit burst {burst} limit {queue}"


def _write_hosts(member: str, address: str) -> None:
    """Gives a member its own /etc/hosts, in which this machine's name is the member's address."""
    folder = _HOSTS / member
    try:
        folder.mkdir(parents=True)
        # The name first: a machine may be called localhost, and the first address is what counts.
        text = f"{address} {socket.gethostname()}\n127.0.0.1 localhost\n::1 localhost\n"
        (folder / "hosts").write_text(text)
    except OSError as error:
        raise NetworkError(f"cannot write {folder}/hosts: {error.strerror}") from error


def _batch(program: list[str], lines: Iterable[str]) -> None:
    """Has `ip` or `tc` carry out many lines in one process, which is ten times as fast."""
    _run([*program, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], stdin: str = "") -> None:
    """Runs a command to its end.

    Raises:
      NetworkError: it could not be started, failed, or did not end.
    """
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            start_new_session=True,  # a Ctrl-C is for us, not for a command that cleans up
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkError(f"cannot run `{' '.join(command)}`: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        if line := _FAILED_LINE.search(done.stderr):
            command = [*command[:-2], stdin.splitlines()[int(line[1]) - 1]]
        raise NetworkError(f"`{' '.join(command)}` failed: {said[0]}")


def _lock_folder() -> Path:
    """The folder of lock files, made if need be: the same one for all who run as root here."""
    for folder in (_LOCKS, Path(tempfile.gettempdir()) / f"{_PREFIX}-{os.geteuid()}"):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            # Not what somebody else put there: the temporary folder is open to all.
            if os.access(folder, os.W_OK) and folder.lstat().st_uid == os.geteuid():
                return folder
    raise NetworkError(f"neither {_LOCKS} nor {tempfile.gettempdir()} takes a lock file")


def _new_lock() -> tuple[Path, int]:
    """A lock file named after a new token, and its descriptor, which holds the lock."""
    folder = _lock_folder()
    while True:
        path = folder / f"{secrets.token_hex(4)}.lock"
        lock = _take_lock(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if lock is not None:  # else the token was in use, or taken for a leftover just now
            return path, lock


def _take_lock(path: Path, flags: int) -> int | None:
    """Opens and locks a file; None where somebody else holds it or has removed it."""
    try:
        lock = os.open(path, flags, 0o600)
    except (FileNotFoundError, FileExistsError):
        return None
    except OSError as error:
        raise NetworkError(f"cannot open {path}: {error.strerror}") from error
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        import fcntl  # there is none on Windows, where rates are read too

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it before may have removed the file between our two calls.
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    os.close(lock)
    return None


def _drop_lock(path: Path, lock: int) -> None:
    path.unlink(missing_ok=True)  # first: a lock that is free marks a leftover
    os.close(lock)


def _remove(token: str) -> None:
    """Removes all of a network but its lock file, which is held by the caller."""
    _end_processes(token)
    if names := [path.name for path in _of(token, _NAMESPACES)]:
        try:
            _batch(["ip", "-force"], [f"netns delete {name}" for name in names])
        except NetworkError:
            if any(_of(token, _NAMESPACES)):  # else somebody else was faster
                raise
    for folder in _of(token, _HOSTS):
        shutil.rmtree(folder, ignore_errors=True)


def _of(token: str, folder: Path) -> list[Path]:
    return list(folder.glob(f"{_PREFIX}-{token}-*"))


def _end_processes(token: str) -> None:
    """Kills what runs inside a network's namespaces, and waits until it is gone."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while inside := _processes_inside(token):
        if time.monotonic() > deadline:
            raise NetworkError(f"process {inside[0]} inside a network does not end")
        for process in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def _processes_inside(token: str) -> list[int]:
    spaces = {space for path in _of(token, _NAMESPACES) if (space := _identity(path))}
    if not spaces:
        return []
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdecimal() and _identity(Path("/proc", name, "ns/net")) in spaces
    ]


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells one namespace from another; None where the path, or its process, is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
