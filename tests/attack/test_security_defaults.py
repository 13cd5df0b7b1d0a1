"""The defaults of security, tried from outside: each attempt gets nowhere, and is counted."""

import array
import dataclasses
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Joined, Welcome
from dlcpd.core.wire.header import Header, Kind
from dlcpd.daemon.peers.key_files import Identity
from dlcpd.daemon.peers.keys import KeyPair
from tests.attack.relay import Relay
from tests.checks import Measured
from tests.daemon.keys_kit import authorise, host_with_keys, revoke, security
from tests.daemon.kit import (
    ARENA,
    PATIENCE,
    Client,
    Daemon,
    configuration,
    environment,
    joins,
    until,
)
from tests.daemon.test_server import STRANGERS
from tests.daemon.test_two_hosts import all_reduce, ranks_of, start

SECTION = "security defaults"
JOB = "a-name-that-nobody-says-in-clear"


class Host:
    """A daemon with keys of its own, on an address of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        name = f"host-{number}"
        self.keys = folder / f"keys-{number}"
        self.identity = host_with_keys(self.keys, name)
        self._file = configuration(folder, name, f"127.0.0.{number}", more=security(self.keys))

    def calls_itself(self, name: str) -> None:
        text = self._file.read_text()
        self._file.write_text(text.replace(f'"{self.identity.host}"', f'"{name}"', 1))

    def start(self) -> Daemon:
        return Daemon(self._file)


@pytest.fixture
def hosts(tmp_path: Path) -> list[Host]:
    """Each has authorised all."""
    made = [Host(tmp_path, number) for number in (1, 2)]
    for host in made:
        authorise(host.keys, *(other.identity for other in made))
    return made


def ask_to_join(clients: list[Client], welcomes: list[Welcome] | None = None) -> None:
    welcomes = welcomes or [client.greet() for client in clients]
    for client, request in zip(clients, joins(JOB, welcomes), strict=True):
        client.send(request)


# --- peers ---------------------------------------------------------------------------------------


@pytest.mark.check(SECTION, "a peer that is not authorised is refused by name, at both ends")
def test_an_unauthorised_peer_is_refused_at_both_ends(
    hosts: list[Host], measured: Measured
) -> None:
    """Whatever the job's store says: its clients name each other's keys, as they are."""
    revoke(hosts[0].keys, hosts[1].identity)
    with hosts[0].start() as a, hosts[1].start() as b, a.client() as first, b.client() as second:
        ask_to_join([first, second])
        here, there = first.refused("not_authorised"), second.refused("not_authorised")
        assert "rank 1 on host-2" in here and hosts[1].identity.pair.text in here
        assert "rank 0 on host-1" in there and hosts[1].identity.pair.text in there
        assert "dlcpctl keys authorise" in here and "dlcpctl keys authorise" in there
        assert a.wait_for("peer_not_authorised")["level"] == "warning"
        counted = {**first.counters()}, {**second.counters()}
        assert counted[0]["refused_not_authorised"] == 1
        assert counted[0]["peer_not_authorised"] >= 1
        assert counted[1]["line_turned_away"] >= 1
    measured(there[:100] + "...")


@pytest.mark.check(SECTION, "authorised hosts join, and are called by the names of their keys")
def test_authorised_hosts_join_under_the_names_of_their_keys(hosts: list[Host]) -> None:
    """Neither by what its daemon says, nor the store."""
    hosts[1].calls_itself("somebody-else")
    with hosts[0].start() as a, hosts[1].start() as b, a.client() as first, b.client() as second:
        ask_to_join([first, second])
        first.expect(Joined)
        second.expect(Joined)
        [session] = first.status()["sessions"]
        assert session["peers"][0]["host"] == "host-2"
        assert session["proof"] == "authorised keys"
        assert first.status()["security"]["hosts"] == 2


@pytest.mark.check(SECTION, "a revoked host: its sessions end by name at both ends, no restart")
@pytest.mark.parametrize("how", ["SIGHUP", "seen"])
def test_a_revoked_host_is_cut_off_at_once(hosts: list[Host], how: str, measured: Measured) -> None:
    with hosts[0].start() as a, hosts[1].start() as b, a.client() as first, b.client() as second:
        ask_to_join([first, second])
        for client in (first, second):
            client.expect(Joined)
        revoke(hosts[0].keys, hosts[1].identity)
        if how == "SIGHUP":
            a.signal(signal.SIGHUP)
        here, there = first.refused("not_authorised"), second.refused("not_authorised")
        assert "rank 1 on host-2" in here and "was revoked on this host" in here
        assert "rank 0 on host-1" in there and "does not authorise the key of this host" in there
        assert first.receive() is None and second.receive() is None, "their sessions are over"
        with a.client() as third:
            third.greet()
            assert third.counters()["peer_revoked"] >= 1
    measured(there[:100] + "...")


@pytest.mark.check(SECTION, "keys change while jobs run: old and new are authorised at once")
def test_keys_change_under_a_running_job(hosts: list[Host]) -> None:
    following = Identity("host-2", KeyPair.new())
    with hosts[0].start() as a, hosts[1].start() as b, a.client() as first, b.client() as second:
        ask_to_join([first, second])
        for client in (first, second):
            client.expect(Joined)
        both = dataclasses.replace(
            hosts[1].identity.public, keys=(following.pair.text, hosts[1].identity.pair.text)
        )
        (hosts[0].keys / "authorised" / "host-2.toml").write_text(both.text())
        a.signal(signal.SIGHUP)
        assert a.wait_for("authorised", added=1, revoked=0)
        assert first.status()["sessions"][0]["state"] == "open"
        hosts[1].identity = following
        (hosts[1].keys / "identity.toml").write_text(following.text())
    with hosts[0].start() as a, hosts[1].start() as b, a.client() as first, b.client() as second:
        ask_to_join([first, second])
        for client in (first, second):
            client.expect(Joined)
        assert first.status()["sessions"][0]["peers"][0]["host"] == "host-2"


@pytest.mark.check(SECTION, "a key file that others can read, or a broken directory: no start")
@pytest.mark.parametrize("what", ["identity", "authorised"])
def test_keys_that_others_can_take_stop_the_start(hosts: list[Host], what: str) -> None:
    if what == "identity":
        (hosts[0].keys / "identity.toml").chmod(0o644)
    else:
        (hosts[0].keys / "authorised" / "host-2.toml").write_text("host = ")
    daemon = hosts[0].start()
    assert daemon.wait() == 2
    assert daemon.process.stderr
    daemon.process.stderr.close()
    [line] = daemon.lines
    assert f"[security] {what} {hosts[0].keys}" in line
    assert ("chmod 600" if what == "identity" else "dlcpctl keys show") in line


# --- the path between controls -------------------------------------------------------------------


@contextmanager
def clients_of_two(folder: Path) -> Iterator[list[Client]]:
    """One client of each of two daemons."""
    other = configuration(folder, "host-2", "127.0.0.2")
    with (
        Daemon(configuration(folder)) as a,
        Daemon(other) as b,
        a.client() as first,
        b.client() as second,
    ):
        yield [first, second]


@contextmanager
def relayed(clients: list[Client]) -> Iterator[tuple[Relay, list[Welcome]]]:
    """Somebody between rank 1 and rank 0's control."""
    own = [client.greet() for client in clients]
    with Relay(own[0]) as relay:
        yield relay, [replace(own[0], endpoint=relay.endpoint), own[1]]


@pytest.mark.check(SECTION, "tokens, proofs and names of jobs are never in clear between controls")
def test_nothing_of_a_session_is_in_clear_between_controls(
    tmp_path: Path, measured: Measured
) -> None:
    proof = secrets.token_hex(32)
    with clients_of_two(tmp_path) as clients, relayed(clients) as (relay, welcomes):
        for client, request in zip(clients, joins(JOB, welcomes), strict=True):
            client.send(replace(request, proof=proof))
        for client in clients:
            client.expect(Joined)
        opened = [client.command("OpenSession")["peers"][0] for client in clients]
        heard = relay.everything
    tokens = {peer[which] for peer in opened for which in ("token_in", "token_out")}
    assert len(tokens) == 2
    for token in tokens:
        for order in ("big", "little"):
            assert token.to_bytes(8, order) not in heard
        assert str(token).encode() not in heard
    for text in (proof, JOB, "host-2"):
        assert text.encode() not in heard
    for step in (b"CURVE", b"HELLO", b"WELCOME", b"INITIATE", b"READY", b"MESSAGE"):
        assert step in heard, "or it listened in vain"
    measured(f"{len(heard)} B heard of a join")


@pytest.mark.check(SECTION, "a replayed handshake, with all that followed it, opens nothing")
def test_a_replayed_handshake_opens_nothing(tmp_path: Path, measured: Measured) -> None:
    with clients_of_two(tmp_path) as clients:
        first = clients[0]
        with relayed(clients) as (relay, welcomes):
            ask_to_join(clients, welcomes)
            for client in clients:
                client.expect(Joined)
            until(lambda: b"MESSAGE" in relay.everything, "a hello was recorded")
            said = next(bytes(each) for each in relay.said if b"MESSAGE" in each)
        before = first.counters()
        address, _, port = first.status()["endpoints"]["control"][6:].partition(":")
        for _ in range(20):
            with (
                suppress(ConnectionResetError),  # it hung up with some of it unread
                socket.create_connection((address, int(port)), PATIENCE) as sock,
            ):
                sock.sendall(said)
                while sock.recv(1 << 16):
                    pass
        after = first.counters()
        assert after["handshake_malformed"] - before.get("handshake_malformed", 0) == 20
        assert first.status()["sessions"][0]["state"] == "open"
    measured("20 of 20 cut off at the cookie")


# --- datagrams -----------------------------------------------------------------------------------


FORGED = 20_000


@pytest.mark.check(SECTION, "data with a forged token changes nothing, is not answered, is counted")
def test_a_forged_token_gets_nowhere(tmp_path: Path, measured: Measured) -> None:
    with start(tmp_path, 1) as one, start(tmp_path, 2) as two:
        ranks = ranks_of([one, two], "forged")
        [address, port], *_ = ranks[0].client.status()["endpoints"]["data"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.3", 0))
            for number in range(FORGED):
                kind = list(Kind)[number % len(Kind)]
                header = Header(kind, secrets.randbits(64), operation=1 + number % 3)
                sock.sendto(header.pack() + bytes(64), (address, port))
            all_reduce(ranks)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        for rank in ranks:
            rank.client.close()
    measured(f"{FORGED} datagrams of all kinds; the result is exact")


# --- this host's users ---------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where strangers get through: pytest keeps its own folders closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.check(SECTION, "a client of another user, outside the group, is not let in")
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("settings", "outcome"), [("", "PermissionError"), ("allowed_users = [1234]", "Refused")]
)
def test_another_user_is_not_let_in(open_folder: Path, settings: str, outcome: str) -> None:
    with Daemon(configuration(open_folder, daemon=settings)) as daemon, daemon.client() as client:
        done = subprocess.run(
            [sys.executable, "-c", STRANGERS, str(daemon.socket), ""],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stdout.split() == [outcome], done.stderr
        client.greet()
        assert client.counters().get("refused_not_permitted", 0) == int(outcome == "Refused")


@pytest.mark.check(SECTION, "shared memory cannot be shrunk, nor sealed, under the engine")
def test_an_arena_cannot_be_shrunk(tmp_path: Path) -> None:
    with start(tmp_path, 1) as one, start(tmp_path, 2) as two:
        ranks = ranks_of([one, two], "shrink")
        for size in (0, 4096, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(ranks[0].client.arena, size)
        with pytest.raises(OSError, match="busy"):  # it is mapped for writing
            fcntl.fcntl(ranks[0].client.arena, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        all_reduce(ranks)
        for rank in ranks:
            rank.client.close()


@pytest.mark.check(SECTION, "memory of a client's own is not taken in the arena's place")
def test_descriptors_of_a_client_are_not_taken(tmp_path: Path) -> None:
    """A memfd that it could shrink, sent beside its Join: the kernel closes it, unseen."""
    own = os.memfd_create("own", os.MFD_CLOEXEC)
    os.ftruncate(own, ARENA)
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as a, daemon.client() as b:
        ask = joins(JOB, [a.greet(), b.greet()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [own]))]
        a.sock.sendmsg([encode(ask[0])], rights)
        b.send(ask[1])
        for client in (a, b):
            client.expect(Joined)
        assert os.fstat(a.arena).st_ino != os.fstat(own).st_ino
        with pytest.raises(PermissionError):
            os.ftruncate(a.arena, 0)
    os.close(own)
