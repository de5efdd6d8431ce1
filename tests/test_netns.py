"""Namespaces as hosts: rates that hold, names that resolve, and nothing left behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accel_bench import netns
from accel_bench.errors import RequestError
from accel_bench.netns import Network, NetworkError

# What one makes of the machine's network another would see.
pytestmark = pytest.mark.alone

_SLEEP = [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(60)"]
# Both print times of the clock that all processes share: when the sending begins, when all is here.
_RECEIVER = """
import socket, sys, time
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
connection, total, buffer = server.accept()[0], 0, bytearray(1 << 18)
while got := connection.recv_into(buffer):
    total += got
print(f"[{total}, {time.monotonic()}]")
"""
_SENDER = """
import socket, sys, time
start = time.monotonic()
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
while time.monotonic() < start + 0.8:
    connection.sendall(bytes(1 << 16))
print(start)
"""
_OWNER = """
import subprocess, sys, time
from accel_bench.netns import Network
network = Network(1, "1gbit")
inside = subprocess.Popen([*network.command(0), *sys.argv[1:]], stdout=subprocess.PIPE)
inside.stdout.readline()
print(network.command(0)[-1], inside.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def able() -> None:
    """Skips what needs real namespaces where there can be none."""
    if reason := netns.unavailable():
        pytest.skip(reason)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the networks that a test builds are known by on this machine."""
    token = secrets.token_hex(4)
    monkeypatch.setattr(netns.secrets, "token_hex", lambda _: token)
    return token


def _traces(token: str) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    folders = [Path("/etc/netns"), netns._lock_folder()]
    files = [str(path) for folder in folders for path in folder.glob(f"*{token}*")]
    return [line for line in listed.stdout.splitlines() if token in line] + files


def _inside(network: Network, index: int, program: str, *arguments: str) -> list[str]:
    return [*network.command(index), sys.executable, "-S", "-c", program, *arguments]


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def _start(command: list[str]) -> subprocess.Popen[str]:
    """Starts a program and waits for its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [
        ("100mbit", 1e8),
        ("1gbit", 1e9),
        ("2.5gbit", 2.5e9),
        ("500kbit", 5e5),
        ("8kbit", 8e3),
        ("1000gbit", 1e12),
        ("unlimited", None),
    ],
)
def test_a_rate_is_read_as_bits_per_second(text: str, bits_per_s: float | None):
    assert netns.parse_rate(text) == bits_per_s


@pytest.mark.parametrize(
    "text",
    [
        *("", "100", "fast", "100mb", "100 mbit", "100Mbit", "-1gbit", "0gbit", "1e3mbit"),
        *(".5gbit", "7.9kbit", "1001gbit", "1gbit\n", "9" * 400 + "gbit", "١gbit", "Unlimited"),
    ],
)
def test_what_is_no_rate_is_refused(text: str):
    with pytest.raises(RequestError) as error:
        netns.parse_rate(text)
    assert str(error.value) == (
        f"link {text!r} is no rate: write unlimited, or a rate between 8kbit and 1000gbit "
        "such as 100mbit or 2.5gbit"
    )


def test_why_there_can_be_no_namespaces_is_said(monkeypatch: pytest.MonkeyPatch):
    def forbidden(*_: object) -> None:
        raise NetworkError("`netns add x` failed: Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(netns.sys, "platform", "darwin")
        assert netns.unavailable() == "network namespaces need Linux, and this is darwin"
    monkeypatch.setattr(netns.sys, "platform", "linux")
    monkeypatch.setattr(netns.os, "geteuid", lambda: 1000)
    assert netns.unavailable() == "network namespaces need root"
    monkeypatch.setattr(netns.os, "geteuid", lambda: 0)
    with monkeypatch.context() as patch:
        patch.setattr(netns.shutil, "which", lambda name: None if name == "tc" else name)
        assert netns.unavailable() == "network namespaces need iproute2; not found: tc"
    monkeypatch.setattr(netns.shutil, "which", lambda name: name)
    monkeypatch.setattr(netns, "Network", forbidden)
    assert netns.unavailable() == "`netns add x` failed: Operation not permitted"


def test_a_network_of_nobody_is_refused():
    with pytest.raises(RequestError, match="a network of 0 members: expected at least 1"):
        Network(0, "1gbit")


@pytest.mark.parametrize("link", ["8kbit", "1000gbit"])
@pytest.mark.usefixtures("able")
def test_the_slowest_and_the_fastest_rate_can_be_set(link: str):
    with Network(1, link) as network:
        assert network.link == link
        assert " tbf " in _output(["tc", "-n", network.command(0)[-1], "qdisc", "show"])


@pytest.mark.usefixtures("able")
def test_the_host_name_is_the_members_own_address():
    find = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    with Network(3, "unlimited") as network:
        assert len(set(network.addresses)) == 3
        found = [_output(_inside(network, index, find)).strip() for index in range(3)]
        assert found == network.addresses
        assert "127.0.0.1" in _output([*network.command(0), "ip", "address", "show", "up", "lo"])
        with pytest.raises(IndexError):
            network.command(3)


@pytest.mark.usefixtures("able")
def test_the_machine_itself_sees_no_link_and_no_address():
    before = {name for _, name in socket.if_nameindex()}
    with Network(2, "1gbit"):
        assert {name for _, name in socket.if_nameindex()} == before


@pytest.mark.parametrize(
    ("flows", "cards"),
    [
        pytest.param(((0, 1),), 1, id="one way"),
        pytest.param(((1, 0), (2, 0)), 1, id="two into one"),
        pytest.param(((0, 1), (0, 2)), 1, id="one into two"),
        pytest.param(((0, 1), (1, 0)), 2, id="both ways"),
    ],
)
@pytest.mark.usefixtures("able")
def test_a_link_carries_its_rate_and_no_more(flows: tuple[tuple[int, int], ...], cards: int):
    """All that goes through one card in one direction is what its link allows."""
    with Network(3, "100mbit") as network:
        ends = [(network.addresses[to], str(5000 + n)) for n, (_, to) in enumerate(flows)]
        receivers = [
            _start(_inside(network, to, _RECEIVER, *end))
            for (_, to), end in zip(flows, ends, strict=True)
        ]
        senders = [
            subprocess.Popen(_inside(network, by, _SENDER, *end), stdout=subprocess.PIPE, text=True)
            for (by, _), end in zip(flows, ends, strict=True)
        ]
        starts = [float(process.communicate(timeout=20)[0]) for process in senders]
        arrived = [json.loads(process.communicate(timeout=20)[0]) for process in receivers]
    seconds = max(end for _, end in arrived) - min(starts)
    bits = 8 * sum(count for count, _ in arrived)
    assert bits <= cards * (1e8 * seconds + 8 * netns._MIN_BURST_BYTES)
    # 4.4 % are headers; both ways at once, acknowledgements take their share too.
    assert bits >= (0.85 if cards == 1 else 0.75) * cards * 1e8 * seconds


@pytest.mark.usefixtures("able")
def test_close_leaves_nothing_and_may_be_repeated(token: str):
    network = Network(2, "1gbit")
    assert len(_traces(token)) == 6  # three namespaces, two hosts files, one lock
    with _start([*network.command(1), *_SLEEP]) as process:
        network.close()
        assert process.wait(timeout=5) == -signal.SIGKILL
    assert _traces(token) == []
    network.close()


@pytest.mark.usefixtures("able")
def test_close_does_not_mind_what_is_gone_already(token: str):
    network = Network(2, "1gbit")
    _output(["ip", "netns", "delete", network.command(0)[-1]])
    network.close()
    assert _traces(token) == []


@pytest.mark.usefixtures("able")
def test_an_interrupt_while_closing_is_raised_when_all_is_gone(
    token: str, monkeypatch: pytest.MonkeyPatch
):
    network = Network(2, "1gbit")
    run, interrupts = netns._run, [signal.SIGINT]

    def interrupted(*arguments: object) -> None:
        if interrupts:
            signal.raise_signal(interrupts.pop())
        run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(netns, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.close()
    assert _traces(token) == []


@pytest.mark.parametrize("how", ["error before", "error after", "interrupt"])
@pytest.mark.usefixtures("able")
def test_a_failure_at_any_step_leaves_nothing(
    how: str, token: str, monkeypatch: pytest.MonkeyPatch
):
    """The n-th command fails, for every n until there are no more commands to fail."""
    run, left = netns._run, 0

    def failing(command: list[str], stdin: str = "") -> None:
        nonlocal left
        left -= 1
        if left == 0 and how == "error before":
            raise NetworkError("no")
        run(command, stdin)
        if left == 0 and how == "error after":
            raise NetworkError("no")
        if left == 0:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(netns, "_run", failing)
    for step in range(1, 20):
        left = step
        try:
            network = Network(2, "1gbit")
        except (NetworkError, KeyboardInterrupt) as error:
            assert str(error) == ("" if how == "interrupt" else "no")
            assert _traces(token) == []
        else:
            left = 0
            network.close()
            assert step == 9  # a network of two takes eight commands
            return
    raise AssertionError("it never worked")


@pytest.mark.usefixtures("able")
def test_a_failed_command_is_named_with_what_it_said():
    with pytest.raises(NetworkError) as error:
        netns._batch(["ip"], ["link show lo", "link set nosuchlink up"])
    assert str(error.value) == (
        '`ip link set nosuchlink up` failed: Cannot find device "nosuchlink"'
    )
    with pytest.raises(NetworkError, match=r"^cannot run `nosuchprogram x`: .*No such file"):
        netns._run(["nosuchprogram", "x"])


@pytest.mark.usefixtures("able")
def test_a_folder_that_cannot_be_written_is_named(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(netns, "_HOSTS", tmp_path / "file")
    with pytest.raises(NetworkError, match=r"^cannot write .*/file/.*/hosts: Not a directory$"):
        Network(1, "1gbit")
    assert _traces(token) == []


@pytest.mark.usefixtures("able")
def test_what_a_killed_owner_left_goes_and_the_living_stay():
    with Network(2, "1gbit") as living, _start([*living.command(0), *_SLEEP]) as inside:
        owner = subprocess.Popen(
            [sys.executable, "-c", _OWNER, *_SLEEP],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        with owner:
            assert owner.stdout
            name, process = owner.stdout.readline().split()
            token = name.split("-")[1]
            assert netns.clear_leftovers() == 0  # it lives
            owner.kill()
            owner.wait()
        assert len(_traces(token)) == 4
        os.kill(int(process), 0)  # what it started lives on

        assert netns.clear_leftovers() == 1

        assert _traces(token) == []
        assert not _alive(int(process))
        assert inside.poll() is None
        assert living.addresses[1] in _output([*living.command(1), "ip", "address"])
        inside.kill()


def _alive(process: int) -> bool:
    """Whether a process, of which we are not the parent, still runs."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.01)
    return True


@pytest.mark.usefixtures("able")
def test_strange_lock_files_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Network(1, "1gbit") as network:
        monkeypatch.setattr(netns, "_LOCKS", tmp_path)
        (tmp_path / "*.lock").touch()
        (tmp_path / "notes.txt").touch()
        assert netns.clear_leftovers() == 0
        assert len(list(tmp_path.iterdir())) == 2
        _output([*network.command(0), "true"])
