"""Links with a delay: how long it is, what comes through, and what ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dlcp_lab.emulation import Fabric, FabricError, Plan, cables, cleanup, fabric
from dlcp_lab.emulation.condition import initial
from dlcp_lab.emulation.namespaces import inhabitants, namespaces

needs_compiler = pytest.mark.skipif(not cables.compiler(), reason="no C compiler")

DELAY = 0.01  # seconds
LONG = 1.6  # seconds; ARP gives up after 3 s
PINGS = 100
PACKETS = 40_000
SLOWEST = 20_000  # packets per second of CPU time
UNDELAYED = 0.002  # seconds; between namespaces of one machine it takes less than 0.1 ms
# The kernel answers a ping and stamps the answer: no process of the hosts is in the time.
PING = """
import json, socket, struct, sys, time
SO_TIMESTAMPNS = 35
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
s.settimeout(30)
times = []
for number in range(int(sys.argv[2]) + 1):
    head = struct.pack("!BBHHH", 8, 0, 0xF7FF - 77 - number, 77, number)  # the sum is all ones
    begin = time.time_ns()
    s.sendto(head, (sys.argv[1], 0))
    data = b""
    while data[20:21] != b"\\0" or struct.unpack_from("!H", data, 26)[0] != number:
        data, [(_, _, stamp)], *_ = s.recvmsg(2048, 256)
    seconds, ns = struct.unpack("qq", stamp)
    times.append((seconds * 10**9 + ns - begin) / 1e9)
print(json.dumps(times if sys.argv[3:] else times[1:]))  # the first one waits for ARP as well
"""
RECEIVE = """
import hashlib, json, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
s.bind(("", 9000))
s.settimeout(60)
print("bound", flush=True)
hashed, count = hashlib.sha256(), 0
while (data := s.recv(2048)) != b"end":
    hashed.update(data)
    count += 1
print(json.dumps([count, hashed.hexdigest()]))
"""
SEND = """
import hashlib, random, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
hashed, pads = hashlib.sha256(), [random.randbytes(n) for n in (1, 100, 1396)]
for number in range(int(sys.argv[2])):
    data = number.to_bytes(4, "big") + pads[number % 3]
    s.sendto(data, (sys.argv[1], 9000))
    hashed.update(data)
    if number % 500 == 0:
        time.sleep(0.01)
time.sleep(0.1)
s.sendto(b"end", (sys.argv[1], 9000))
print(hashed.hexdigest())
"""
STREAM = """
import hashlib, socket, sys
with socket.create_server(("", 9000)) as server:
    print("bound", flush=True)
    connection, _ = server.accept()
    hashed = hashlib.sha256()
    while data := connection.recv(1 << 16):
        hashed.update(data)
print(hashed.hexdigest())
"""
SEND_STREAM = """
import hashlib, random, socket, sys
data = random.randbytes(8 << 20)
socket.create_connection((sys.argv[1], 9000)).sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
OWNER = """
import os, signal, sys
from dlcp_lab.emulation import Plan, fabric
from dlcp_lab.emulation.namespaces import inhabitants
with fabric(Plan(hosts=1, delays=(("", 0.01),))) as net:
    print(*inhabitants([net.namespace("c0")]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def python(net: Fabric, host: int, code: str, *words: str) -> str:
    """Standard output of a program on a host."""
    child = net.run(host, [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True)
    out, _ = child.communicate(timeout=90)
    assert child.returncode == 0
    return str(out)


def listening(net: Fabric, code: str) -> subprocess.Popen[str]:
    """A program on host 1 that has said that it is bound."""
    child: Any = net.run(1, [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "bound\n"
    return child  # type: ignore[no-any-return]  # Popen's kind is lost in `run`


def round_trips(net: Fabric) -> list[float]:
    """Seconds, from host 0 to host 1 and back."""
    times: list[float] = json.loads(python(net, 0, PING, net.address(1), str(PINGS)))
    assert len(times) == PINGS
    return times


def cable(net: Fabric) -> int:
    """The process of the cables."""
    [pid] = inhabitants([net.namespace(cables.NODE)])
    return pid


def inside(net: Fabric, node: str, *argv: str) -> str:
    """Standard output of a command in the namespace of a node."""
    command = ("ip", "netns", "exec", net.namespace(node), *argv)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ends(pid: int) -> bool:
    """Whether a process has ended or ends soon: a killed one takes a moment."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # its parent has not taken its status yet
            return True
        time.sleep(0.01)
    return False


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def delayed() -> Iterator[Fabric]:
    with fabric(Plan(buffer_bytes=64 << 20, delays=(("h0-l0", DELAY),))) as net:
        yield net


@pytest.mark.netns
@needs_compiler
def test_the_delay_is_within_a_twentieth(delayed: Fabric) -> None:
    """Never shorter; the median, which few late wake-ups on a busy machine do not change."""
    times = round_trips(delayed)
    assert min(times) >= 2 * DELAY
    assert median(times) <= 2 * DELAY * 1.05


@pytest.mark.netns
@needs_compiler
def test_all_bytes_come_through_in_order_at_20_000_packets_a_second_of_cpu_time(
    delayed: Fabric,
) -> None:
    round_trips(delayed)  # ARP has its answer
    receiver = listening(delayed, RECEIVE)
    before = cpu_seconds(cable(delayed))
    sent = python(delayed, 0, SEND, delayed.address(1), str(PACKETS)).strip()
    out, _ = receiver.communicate(timeout=90)
    assert json.loads(out) == [PACKETS, sent]
    assert cpu_seconds(cable(delayed)) - before <= PACKETS / SLOWEST


@pytest.mark.netns
@needs_compiler
def test_segments_of_offloads_and_their_checksums_come_through() -> None:
    """A host that hands whole bursts to its interface, without checksums."""
    with fabric(Plan(delays=(("h0-l0", DELAY),))) as net:
        for node, device in (("h0", "eth0"), ("c0", "l0.h0"), ("l0", "h0")):
            ways = ("tso", "on", "gso", "on")
            inside(net, node, "ethtool", "-K", device, *ways)
        receiver = listening(net, STREAM)
        sent = python(net, 0, SEND_STREAM, net.address(1))
        out, _ = receiver.communicate(timeout=90)
        assert out == sent
        shown = json.loads(inside(net, "c0", "ip", "-j", "-s", "link", "show", "h0.l0"))
    counted = shown[0]["stats64"]["rx"]
    assert counted["bytes"] / counted["packets"] > 1514  # else no burst was one packet


@pytest.mark.netns
@needs_compiler
def test_one_direction_of_a_link_and_two_links_on_the_way() -> None:
    plan = Plan(delays=(("", 0.002), ("l0:h1", DELAY), ("h1:l0", 0.0)))
    with fabric(plan) as net:
        planned = {name: each.delay for name, each in net.conditions.items()}
        assert planned == {"h0:l0": 0.002, "l0:h0": 0.002, "h1:l0": 0.0, "l0:h1": DELAY}
        times = round_trips(net)
        assert net.features()["delays"] == "cables in user space"
        net.cut("h0-l0")
        net.restore()
        assert min(times) >= DELAY + 0.004
        assert median(times) <= (DELAY + 0.004) * 1.05 + UNDELAYED


@pytest.mark.netns
@needs_compiler
def test_arp_waits_for_an_answer_that_takes_longer_than_its_own_limit() -> None:
    with fabric(Plan(delays=(("h0-l0", LONG),))) as net:
        [took] = json.loads(python(net, 0, PING, net.address(1), "0", "first"))
    assert took >= 4 * LONG  # ARP there and back, then the ping


@pytest.mark.netns
@needs_compiler
def test_a_cable_ends_with_its_fabric() -> None:
    with fabric(Plan(hosts=1, delays=(("", DELAY),))) as net:
        pid = cable(net)
    assert namespaces(net.name) == []
    assert ends(pid)


@pytest.mark.netns
@needs_compiler
def test_a_cable_ends_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = cables.start, {}

    def start_and_fail(name: str, *more: Any) -> None:
        start(name, *more)
        started[name] = inhabitants([f"{name}-{cables.NODE}"])
        raise FabricError("of the test")

    monkeypatch.setattr(cables, "start", start_and_fail)
    with (
        pytest.raises(FabricError, match="of the test"),
        fabric(Plan(hosts=1, delays=(("", DELAY),))),
    ):
        pass
    [(name, [pid])] = started.items()
    assert namespaces(name) == []
    assert ends(pid)


@pytest.mark.netns
@needs_compiler
def test_a_cable_ends_with_a_killed_owner() -> None:
    owner = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, check=False)
    assert owner.returncode == -signal.SIGKILL
    assert ends(int(owner.stdout))
    cleanup()


@pytest.mark.netns
def test_without_a_compiler_it_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cables.compiled.cache_clear()
    monkeypatch.setattr(cables, "COMPILERS", ("no-such-compiler",))
    with (
        pytest.raises(FabricError, match=r"no C compiler found \(no-such-compiler\); install gcc"),
        fabric(Plan(delays=(("", DELAY),))),
    ):
        pass
    with fabric(Plan(hosts=1)) as net:  # without delays no compiler is needed
        assert net.features()["delays"] == "none"


@pytest.mark.parametrize(
    ("delays", "says"),
    [
        ((("", -0.001),), "delay of -0.001 s is out of range: use 0 to 10 s"),
        ((("h0-l0", 10.1),), "delay of 10.1 s"),
        ((("h0-l0", float("nan")),), "delay of nan s"),
        ((("l0-s0", 0.1),), "no link 'l0-s0': use one of h0-l0, h1-l0, or a direction"),
    ],
)
def test_what_no_link_can_have_is_refused(delays: tuple[tuple[str, float], ...], says: str) -> None:
    with pytest.raises(FabricError, match=says):
        initial(Plan(delays=delays))
