"""A peer that a job admitted sends more than it should; control's memory stays as it is."""

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlcpd.contract.messages import Join, PeerRow
from dlcpd.daemon.peers.curve import MORE
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.daemon.peers.peer_messages import MAX_PEER_FRAME
from dlcpd.daemon.peers.peers import PeerAddress
from tests.attack.resources import MB, Memory
from tests.checks import Measured
from tests.daemon.kit import ARENA, Client, Daemon, configuration
from tests.daemon.raw_peer import RawPeer, listening

pytestmark = pytest.mark.executed  # their memory is measured

GB = 1000 * MB
MOST = 100 * MB  # that control may grow by
TIMEOUT = 600.0  # seconds of the join, which lasts as long as the attack


@dataclass
class Stage:
    """A daemon with a session that names the attacker's key; it connects to the attacker too."""

    daemon: Daemon
    client: Client
    control: PeerAddress
    keys: KeyPair
    listener: socket.socket

    def attack(self) -> RawPeer:
        return RawPeer.connect(self.control, self.keys)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    keys = KeyPair.new()
    attacker, listener = listening(keys)
    with listener, Daemon(configuration(tmp_path)) as daemon, daemon.client() as client:
        own = client.greet()
        rows = [
            PeerRow(0, own.host, own.endpoint, own.public_key),
            PeerRow(1, "attacker", attacker.endpoint, attacker.key),
        ]
        client.send(Join("job", 0, 2, ARENA, TIMEOUT, rows))
        daemon.wait_for("joining")
        yield Stage(daemon, client, PeerAddress(own.endpoint, own.public_key), keys, listener)


def pour(peer: RawPeer, size: int, message: bytes, flags: int = 0) -> int:
    """Bytes that it could send, of `size` at most, until it was cut off."""
    sent = 0
    try:
        while sent < size:
            peer.say(message, flags)
            sent += len(message)
    except OSError:
        pass
    return sent


def worst_answer(client: Client, busy: threading.Thread) -> float:
    """Seconds that a status request took at most, while `busy` ran."""
    worst = 0.0
    while busy.is_alive():
        began = time.monotonic()
        client.status()
        worst = max(worst, time.monotonic() - began)
    return worst


@pytest.mark.check(11, "1 GB of messages of a peer is read and not kept; others get their answers")
def test_a_flood_of_messages_is_not_kept(stage: Stage, measured: Measured) -> None:
    memory, message = Memory(stage.daemon.process.pid), b"\xc1" * (MAX_PEER_FRAME - 100)
    with stage.attack() as peer:
        flood = threading.Thread(target=pour, args=(peer, GB, message))
        flood.start()
        worst = worst_answer(stage.client, flood)
        flood.join()
    counters = stage.client.counters()
    assert counters["peer_no_msgpack"] > 0.9 * GB / len(message), counters
    assert memory.growth < MOST
    measured(f"+{memory.growth / MB:.1f} MB, status within {worst:.3f} s meanwhile")


@pytest.mark.check(11, "messages of 20 MiB, 1 GB of them if they were read, are cut off")
def test_long_messages_are_not_read(stage: Stage, measured: Measured) -> None:
    memory = Memory(stage.daemon.process.pid)
    sent = 0
    for _ in range(50):
        with stage.attack() as peer:
            sent += pour(peer, 20 << 20, bytes(20 << 20))
    assert stage.client.counters()["peer_stream_broken"] == 50
    assert memory.growth < MOST
    measured(f"+{memory.growth / MB:.1f} MB")


@pytest.mark.check(11, "a message of endless parts is cut off at the first one")
@pytest.mark.parametrize("size", [1, MAX_PEER_FRAME], ids="parts of {} B".format)
def test_parts_are_not_kept(stage: Stage, size: int, measured: Measured) -> None:
    memory = Memory(stage.daemon.process.pid)
    for _ in range(50):
        with stage.attack() as peer:
            assert pour(peer, GB, bytes(size), MORE) < GB
    assert stage.client.counters()["peer_many_parts"] == 50
    assert memory.growth < MOST
    measured(f"+{memory.growth / MB:.1f} MB over 50 connections")


@pytest.mark.check(11, "what comes back on a line that only sends is cut off unread")
@pytest.mark.parametrize("flags", [0, MORE], ids=["messages", "endless parts"])
def test_a_line_is_not_spoken_on(stage: Stage, flags: int, measured: Measured) -> None:
    memory = Memory(stage.daemon.process.pid)
    for _ in range(10):
        with RawPeer.accept(stage.listener, stage.keys) as peer:
            assert pour(peer, GB, bytes(MAX_PEER_FRAME), flags) < GB
    assert stage.client.counters()["line_talks"] == 10
    assert memory.growth < MOST
    measured(f"+{memory.growth / MB:.1f} MB over 10 connections")
