"""The simplest fabric, one switch: it carries, limits, loses what it should, leaves nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp_lab.emulation import Fabric, FabricError, Plan, cleanup, fabric, queues, unavailable
from dlcp_lab.emulation.namespaces import inhabitants, owners
from dlcp_lab.lab.ranks import TIMED_OUT, run_ranks

pytestmark = pytest.mark.netns

PORT = 9000
PAYLOAD = 1400  # bytes per datagram
RECEIVE_ONE = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(30)
s.bind(("", int(sys.argv[1])))
print("bound", flush=True)
print(s.recvfrom(2048))
"""
SEND_MANY = """
import socket, sys
host, port, size, count = sys.argv[1], *map(int, sys.argv[2:])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(count):
    s.sendto(bytes(size), (host, port))
"""
SEND_BURST = """
import socket, sys
UDP_SEGMENT = 103  # linux/udp.h
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1400)
s.sendto(bytes(40 * 1400), (sys.argv[1], int(sys.argv[2])))
"""


def send(net: Fabric, count: int) -> None:
    """Datagrams from host 0 to host 1."""
    target = (net.address(1), str(PORT), str(PAYLOAD), str(count))
    child = net.run(0, [sys.executable, "-c", SEND_MANY, *target])
    assert child.wait(30) == 0


def inside(namespace: str, *argv: str) -> str:
    """Standard output of a command in a namespace."""
    command = ("ip", "netns", "exec", namespace, *argv)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def mine() -> list[str]:
    """Namespaces that this process has made."""
    listed = subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(f"dlcpd-{os.getpid()}-")]


def test_a_datagram_crosses_from_its_own_address() -> None:
    with fabric() as net:
        receiver = net.run(
            1, [sys.executable, "-c", RECEIVE_ONE, str(PORT)], stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        with receiver.stdout as lines:
            assert lines.readline() == "bound\n"
            send(net, 1)
            assert net.address(0) in lines.readline()
        assert net.statistics()["l0:h1"].sent_packets >= 1
        assert net.lost_packets() == 0


def test_the_rate_is_limited_and_the_buffer_drops_the_rest() -> None:
    buffer_bytes, count = 64 * 1024, 1000  # 1.4 MB at 1 Mbit/s would take 11 s
    with fabric(Plan(host_rate="1mbit", buffer_bytes=buffer_bytes)) as net:
        send(net, count)
        port = net.statistics()["l0:h1"]
        assert 0 < port.sent_packets < count // 2
        assert port.dropped_packets > count // 4


def test_a_segmented_send_meets_the_buffer_as_single_packets() -> None:
    """A 56 kB GSO burst that crossed as one "packet" would not fit this buffer at all."""
    with fabric(Plan(host_rate="1mbit", buffer_bytes=8 * 1024)) as net:
        child = net.run(0, [sys.executable, "-c", SEND_BURST, net.address(1), str(PORT)])
        assert child.wait(30) == 0
        port = net.statistics()["l0:h1"]
        assert port.dropped_packets > 0
        assert port.sent_packets > 4


def test_both_ends_of_a_link_have_their_offloads_off() -> None:
    names = (
        "tx-udp-segmentation",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
    )
    with fabric() as net:
        for namespace, device in ((net.host_namespace(0), "eth0"), (net.namespace("l0"), "h0")):
            shown = inside(namespace, "ethtool", "-k", device)
            states = dict(line.strip().split(": ", 1) for line in shown.splitlines()[1:])
            assert {states[name] for name in names} == {"off"}


def test_the_random_loss_is_near_its_fraction_and_counted() -> None:
    count = 2000
    with fabric(Plan(loss=0.1)) as net:
        send(net, count)
        # Binomial(2000, 0.1): 13.4 standard deviations apart; a wrong scale is factors away.
        assert 20 < net.lost_packets() < 380
        port = net.statistics()["l0:h1"]
        # A sender that was held up may meet a full queue with what it owes: counted as well.
        assert port.sent_packets + port.dropped_packets >= count - net.lost_packets()


def test_programs_and_namespaces_end_with_the_fabric() -> None:
    with fabric(Plan(hosts=3)) as net:
        assert len(mine()) == 4
        child = net.run(2, [sys.executable, "-c", "import signal; signal.pause()"])
    assert child.returncode == -signal.SIGTERM  # asked first, so that it can flush its output
    assert mine() == []


def test_a_deaf_grandchild_does_not_outlive_the_fabric() -> None:
    script = "trap '' TERM; (trap '' TERM; sleep 300) & echo $!; wait"
    with fabric() as net:
        child = net.run(0, ["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child.stdout as lines:
            grandchild = int(lines.readline())
    # Killed; at most a zombie until its new parent reaps it.
    status = Path(f"/proc/{grandchild}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert mine() == []


def test_a_failure_inside_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), fabric():
        raise ZeroDivisionError
    assert mine() == []


def test_a_failure_while_building_leaves_nothing_and_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "GUARANTEED", "slow")
    with pytest.raises(FabricError, match=r"tc -n(.|\n)*rate"), fabric(Plan(classes=True)):
        pytest.fail("a fabric without a rate was made")
    assert mine() == []


def test_an_unknown_host_is_refused() -> None:
    with fabric() as net, pytest.raises(FabricError, match=r"host 2: .* 0\.\.1"):
        net.run(2, ["true"])


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a fabric; its first line is the fabric's name."""
    script = (
        "import signal\nfrom dlcp_lab.emulation import fabric\n"
        "with fabric() as net:\n    print(net.name, flush=True)\n    signal.pause()"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        yield process
        process.kill()
    cleanup()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_fabric_names_its_owner_while_that_lives(owner: subprocess.Popen[str]) -> None:
    first_line(owner)
    assert owner.pid in owners()
    owner.kill()
    owner.wait(30)
    cleanup()
    assert owner.pid not in owners()


def test_the_fabric_of_a_killed_process_is_cleaned_up(owner: subprocess.Popen[str]) -> None:
    name = first_line(owner)
    assert not any(left.startswith(name) for left in cleanup())  # its owner lives
    owner.kill()
    owner.wait(30)
    assert {f"{name}-l0", f"{name}-h0", f"{name}-h1"} <= set(cleanup())
    assert not any(left.startswith(name) for left in cleanup())


def test_the_next_fabric_cleans_up_as_well(owner: subprocess.Popen[str]) -> None:
    name = first_line(owner)
    owner.kill()
    owner.wait(30)
    with fabric():
        assert not any(left.startswith(name) for left in cleanup())


def test_ranks_run_with_their_place_and_the_first_failure_counts() -> None:
    with fabric() as net:
        assert run_ranks(net, ["sh", "-c", 'test "$WORLD_SIZE" = 2'], timeout=30) == 0
        assert run_ranks(net, ["sh", "-c", "test $RANK = 0 || exit 7; sleep 300"], timeout=30) == 7


def test_ranks_that_hang_are_lost() -> None:
    with fabric() as net:
        assert run_ranks(net, ["sleep", "300"], timeout=0.2) == TIMED_OUT
        assert inhabitants([net.host_namespace(host) for host in range(net.hosts)]) == []


def test_without_the_tools_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert unavailable().startswith("this host lacks ip, tc, nft, ethtool")
    with pytest.raises(FabricError, match="this host lacks"), fabric():
        pytest.fail("a fabric was made without tools")
