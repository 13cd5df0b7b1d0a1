"""A daemon serves clients of the version of messages before, and peers agree on a version.

Frames of version 10 are written out here, as that version made and read them.
"""

import mmap
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from dlcpd.build import COMMIT
from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import encode, encode_for
from dlcpd.contract.inquiries import STATUS_PART, Health, HealthRequest, Status
from dlcpd.contract.messages import SERVED, VERSION, Failed, Hello, Joined
from dlcpd.daemon.peers.peer_messages import (
    OLDEST_PEER,
    PEER_VERSION,
    OtherVersion,
    PeerHello,
    pack,
    unpack_peer_untrusted,
)
from dlcpd.daemon.versions import text
from dlcpd.inspection.conversation import Conversation
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, environment, join_all, joins
from tests.daemon.test_two_hosts import ARENA, COUNT, SUBMIT, Rank, start

FORMER = 10
# Values of a frame of version 10, its kind among them: the most that its readers take.
LENGTHS = {"Welcome": 5, "Joined": 3, "Status": 2, "Refused": 3, "Completed": 11, "Released": 2}
KINDS = {1: "Welcome", 3: "Joined", 5: "Status", 6: "Refused", 10: "Completed", 11: "Released"}
NEXT = Path(__file__).with_name("run_next_version.py")
FORMER_DAEMON = NEXT.with_name("run_former_version.py")


@dataclass
class FormerClient:
    """A client of version 10: it sends and reads plain lists."""

    path: Path
    descriptors: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self.path))

    def ask(self, *values: Any) -> list[Any]:
        self.sock.send(msgpack.packb(values))
        data, self.descriptors, _, _ = socket.recv_fds(self.sock, 1 << 20, 4)
        return read(data)


def read(data: bytes) -> list[Any]:
    """A frame, which version 10 would accept."""
    found: list[Any] = msgpack.unpackb(data)
    assert len(found) <= LENGTHS[KINDS[found[0]]], found
    return found


def test_a_client_one_version_behind_trains_with_one_of_this_version(tmp_path: Path) -> None:
    with start(tmp_path, 8) as daemon, daemon.client() as current:
        former = FormerClient(daemon.socket)
        kind, version, host, endpoint, key = former.ask(0, FORMER, "former")
        assert (kind, version, host) == (1, FORMER, "host-8")
        welcome = current.greet()
        assert welcome.version == VERSION
        assert [welcome.endpoint, welcome.public_key] == [endpoint, key]
        request = joins("mixed", [welcome, welcome])[1]
        current.send(type(request)(request.job, 1, 2, ARENA, request.timeout, request.peers))
        peers = [list(row) for row in request.peers]
        joined = former.ask(2, "mixed", 0, 2, ARENA, PATIENCE, peers, "", 0)
        assert joined[0] == 3
        current.expect(Joined)
        arena, lane = former.descriptors
        values = np.frombuffer(mmap.mmap(arena, ARENA), np.float32)
        values[:COUNT] = 2.0
        rank = Rank(current)
        rank.values[:COUNT] = 1.0
        submit = msgpack.unpackb(encode(SUBMIT))[:26]  # version 10 ends with `codec`
        with socket.socket(fileno=lane) as to_engine:
            to_engine.settimeout(PATIENCE)
            to_engine.send(msgpack.packb(submit))
            rank.submit(SUBMIT)
            while (found := read(to_engine.recv(1 << 20)))[0] != 10:
                pass
            assert found[1] == 1 and np.all(values[:COUNT] == 3.0)
            rank.result()
            [_, report] = former.ask(4, 0)
            assert b'"client_older":1' in report
            refused = former.ask(2, "again", 0, 1, ARENA, PATIENCE, peers[:1], "", 0)
            assert refused[:2] == [6, "bad_message"]
        assert daemon.wait_for("client_older", version=FORMER)["client"] == "former"
        former.sock.close()


def test_what_version_10_cannot_read_is_refused_by_name(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode="big") as daemon:
        former = FormerClient(daemon.socket)
        former.ask(0, FORMER, "former")
        kind, code, why = former.ask(4, 0)
        assert (kind, code) == (6, "too_many") and "use the dlcpctl of the daemon's release" in why
        former.sock.close()


@pytest.mark.parametrize("version", [FORMER - 1, VERSION + 1])
def test_two_versions_behind_and_the_next_one_are_refused(tmp_path: Path, version: int) -> None:
    with Daemon(configuration(tmp_path)) as daemon, Client.connect(daemon.socket) as client:
        client.send(Hello(version, "x"))
        told = client.refused("bad_message")
        assert f"speaks version {version}, this daemon {VERSION} and {FORMER}: install" in told


def test_commands_ask_a_daemon_of_the_version_before(tmp_path: Path) -> None:
    """As after an upgrade beside a job: the package's scripts ask whether sessions are left."""
    with (
        Daemon(configuration(tmp_path), runner=FORMER_DAEMON) as daemon,
        Conversation(str(daemon.socket)) as commands,
    ):
        report = commands.status(0)
        assert report["messages"] == [FORMER, FORMER - 1] and report["sessions"] == []
        assert isinstance(commands.ask(HealthRequest(), Health), Health)


def test_commands_are_refused_by_a_daemon_of_two_versions_before(tmp_path: Path) -> None:
    told = f"speaks version {VERSION}, this daemon {VERSION - 2} and {VERSION - 3}"
    with (
        Daemon(configuration(tmp_path), runner=FORMER_DAEMON, mode="older") as daemon,
        pytest.raises(BadMessage, match=told),
    ):
        Conversation(str(daemon.socket))


def test_an_older_client_gets_no_default_that_it_may_not_know() -> None:
    assert SERVED == (VERSION, FORMER)
    last, first = Status(b"{}"), Status(b"{}", 3)
    assert msgpack.unpackb(encode_for(FORMER, last)) == [5, b"{}"]
    assert msgpack.unpackb(encode_for(FORMER, first)) == [5, b"{}", 3]
    assert encode_for(VERSION, last) == encode(last) and len(msgpack.unpackb(encode(last))) == 3
    failed = Failed(1, "c", "t", 2)
    assert msgpack.unpackb(encode_for(FORMER, failed)) == [12, 1, "c", "t", 2]
    assert len(encode(last)) < STATUS_PART


def test_daemons_of_this_and_the_next_version_serve_a_job(tmp_path: Path) -> None:
    one = configuration(tmp_path, "host-a", "127.0.0.1")
    two = configuration(tmp_path, "host-b", "127.0.0.2")
    with (
        Daemon(one) as ours,
        Daemon(two, runner=NEXT) as newer,
        ours.client() as here,
        newer.client() as there,
    ):
        join_all([here, there], "skewed")
        report = there.status()
        assert report["peers"] == [PEER_VERSION + 1, PEER_VERSION]
        assert here.status()["peers"] == [PEER_VERSION]
        assert report["counters"].get("peer_other_version", 0) == 0


HELLO = PeerHello(
    job="j",
    from_rank=0,
    to_rank=1,
    session=5,
    echo=0,
    answer=False,
    serving=False,
    host="h",
    proof="",
    token=1,
    secret="0" * 32,
    seed=0,
    endpoints=[],
    engines=1,
    world_size=2,
    chunk_bytes=1,
    digest_every=0,
    checksum=1,
    data_encryption=0,
)


def hello(label: int, **more: Any) -> bytes:
    """A hello in a frame of this version, with further fields."""
    _, kind, fields = msgpack.unpackb(pack(HELLO))
    fields["endpoints"] = [["127.0.0.1", 7]]
    packed: bytes = msgpack.packb([label, kind, fields | more])
    return packed


def test_hellos_are_read_where_the_versions_of_both_overlap() -> None:
    newer = unpack_peer_untrusted(hello(OLDEST_PEER, newest=PEER_VERSION + 1, later=[1]))
    assert isinstance(newer, PeerHello) and newer.newest == PEER_VERSION + 1
    for frame in (
        hello(PEER_VERSION + 1, newest=PEER_VERSION + 2),  # it speaks none of ours
        hello(OLDEST_PEER - 1),
        hello(OLDEST_PEER - 2, newest=PEER_VERSION),
    ):
        with pytest.raises(OtherVersion):
            unpack_peer_untrusted(frame)
    below = unpack_peer_untrusted(hello(OLDEST_PEER - 1, newest=PEER_VERSION))
    assert isinstance(below, PeerHello), "it speaks ours, and one older"


def test_commands_name_all_versions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dlcpd.ctl.main", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout == f"{text('dlcpctl')}\n"
    first, second = done.stdout.splitlines()
    assert first.startswith("dlcpctl ")
    assert f"messages {VERSION} and {FORMER}; peers {PEER_VERSION}" in second
    assert (COMMIT or "unknown") in second
