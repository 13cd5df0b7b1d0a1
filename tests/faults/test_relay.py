"""The relay between hosts that are plain sockets: what passes, waits, and stands still."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dlcp_lab.faults.network import CONTROL_PORT, DATA_PORT, Network
from dlcp_lab.faults.relay import Relay
from dlcp_lab.faults.rules import Cut, Reorder, Way

PATIENCE = 20.0  # seconds; never waited for when all is well


class Hosts:
    """Two of them, with a socket each."""

    def __init__(self, stack: ExitStack) -> None:
        self.network = Network(2)
        self.relay = stack.enter_context(Relay(self.network, lambda: [os.getpid()]))
        self.ends = [stack.enter_context(self._end(host)) for host in range(2)]

    def _end(self, host: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((self.network.address(host), DATA_PORT))
        sock.settimeout(PATIENCE)
        return sock

    def send(self, source: int, data: bytes) -> None:
        self.ends[source].sendto(data, (self.network.relay(1 - source), DATA_PORT))

    def receive(self, host: int) -> tuple[bytes, str]:
        data, (address, _) = self.ends[host].recvfrom(1 << 16)
        return data, address


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(stack)


def test_a_datagram_seems_to_come_from_its_sender(hosts: Hosts) -> None:
    hosts.send(0, b"there")
    assert hosts.receive(1) == (b"there", hosts.network.relay(0))
    hosts.send(1, b"back")
    assert hosts.receive(0) == (b"back", hosts.network.relay(1))


def test_what_is_cut_is_lost_and_counted_until_it_is_healed(hosts: Hosts) -> None:
    rule = Cut([Way(source=0)])
    hosts.relay.add(rule)
    hosts.send(0, b"lost")
    hosts.send(1, b"the other way")
    assert hosts.receive(0)[0] == b"the other way"
    while not rule.fired:
        pass
    hosts.relay.remove(rule)
    hosts.send(0, b"healed")
    assert hosts.receive(1)[0] == b"healed"


def test_what_a_rule_holds_goes_on_when_nothing_follows(hosts: Hosts) -> None:
    hosts.relay.add(Reorder([Way()], 1, 100))
    hosts.send(0, b"held")
    assert hosts.receive(1)[0] == b"held"


def test_a_trigger_acts_once_and_before_its_datagram_goes_on(hosts: Hosts) -> None:
    began, may_end, acted = threading.Event(), threading.Event(), list[int]()

    def act() -> None:
        acted.append(1)
        began.set()
        assert may_end.wait(PATIENCE)

    trigger = hosts.relay.when(lambda passage: passage.data == b"now", act)
    for data in (b"before", b"now", b"now"):
        hosts.send(0, data)
    assert began.wait(PATIENCE)
    assert hosts.receive(1)[0] == b"before"
    hosts.ends[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        hosts.receive(1)
    hosts.ends[1].settimeout(PATIENCE)
    may_end.set()
    trigger.wait(PATIENCE)
    assert [hosts.receive(1)[0] for _ in range(2)] == [b"now"] * 2
    assert acted == [1]


def test_what_a_trigger_raises_reaches_whoever_waits_for_it(hosts: Hosts) -> None:
    trigger = hosts.relay.when(lambda _: True, lambda: os.kill(os.getpid(), 9999))
    with pytest.raises(TimeoutError):
        trigger.wait(0.01)
    hosts.send(0, b"!")
    with pytest.raises(OSError, match="Invalid argument"):
        trigger.wait(PATIENCE)
    assert hosts.receive(1)[0] == b"!"


def test_connections_end_with_the_relay() -> None:
    with ExitStack() as stack:
        inner = stack.enter_context(ExitStack())
        hosts = Hosts(inner)
        server = stack.enter_context(socket.create_server((hosts.network.address(1), CONTROL_PORT)))
        near = stack.enter_context(
            socket.create_connection((hosts.network.relay(1), CONTROL_PORT), PATIENCE)
        )
        far = stack.enter_context(server.accept()[0])
        near.sendall(b"one")
        assert far.recv(100) == b"one"
        inner.close()
        assert near.recv(100) == far.recv(100) == b""


def test_a_connection_stands_still_while_its_hosts_are_cut_off(hosts: Hosts) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((hosts.network.address(1), CONTROL_PORT)))
        near = stack.enter_context(
            socket.create_connection((hosts.network.relay(1), CONTROL_PORT), PATIENCE)
        )
        far = stack.enter_context(server.accept()[0])
        far.settimeout(PATIENCE)
        near.sendall(b"one")
        assert far.recv(100) == b"one"  # it is known now that host 0 made the connection
        hosts.relay.cut_controls([frozenset((0, 1))])
        near.sendall(b"two")
        while not hosts.relay.held:
            pass
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(100)
        far.settimeout(PATIENCE)
        hosts.relay.cut_controls(())
        assert far.recv(100) == b"two"
        far.sendall(b"three")
        assert near.recv(100) == b"three"
        near.close()
        assert far.recv(100) == b""
