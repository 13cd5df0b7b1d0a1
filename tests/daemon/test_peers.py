"""Real Peers objects on one uvloop, with each other and with libzmq; nothing is replaced."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
import zmq

from dlcpd.contract.errors import AddressUnavailable, TooMany
from dlcpd.daemon.config.tables import AUTHORISED
from dlcpd.daemon.peers import incoming, line, listener, peers
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.curve import COMMAND
from dlcpd.daemon.peers.frames import greeting
from dlcpd.daemon.peers.key_files import Identity
from dlcpd.daemon.peers.keys import KeyPair, key_text
from dlcpd.daemon.peers.line import ENDED, MAX_QUEUED, REFUSED, REOPENED
from dlcpd.daemon.peers.peer_messages import (
    MAX_PEER_FRAME,
    PEER_VERSION,
    Goodbye,
    PeerMessage,
    pack,
)
from dlcpd.daemon.peers.peers import PeerAddress, PeerCallbacks, Peers
from dlcpd.daemon.peers.trust import Trust
from tests.daemon.keys_kit import authorise, host_with_keys, revoke
from tests.daemon.kit import PATIENCE
from tests.daemon.raw_peer import RawPeer, listening

HELLO = Goodbye("job", 0, 1, 5, 6, "code", "text")


class Node:
    """One control's peers, and what they were told."""

    def __init__(
        self,
        address: str = "127.0.0.1",
        port: int = 0,
        folder: Path | None = None,
        keys: KeyPair | None = None,
    ) -> None:
        self.inbox: asyncio.Queue[tuple[str, PeerMessage]] = asyncio.Queue()
        self.versions: list[tuple[str, int]] = []
        self.turned_away: list[tuple[PeerAddress, str]] = []
        self.lost: list[tuple[PeerAddress, str]] = []
        self.counters: Counter[str] = Counter()
        pair = keys or KeyPair.new()
        news = PeerCallbacks(
            message=lambda key, message: self.inbox.put_nowait((key, message)),
            other_version=lambda key, version: self.versions.append((key, version)),
            turned_away=lambda peer, code: self.turned_away.append((peer, code)),
            lost=lambda peer, sign: self.lost.append((peer, sign)),
        )
        self.peers = Peers(
            asyncio.get_running_loop(),
            address,
            port,
            trust=Trust(pair, Authorised(folder, pair.text)),
            news=news,
            counters=self.counters,
        )

    @property
    def address(self) -> PeerAddress:
        return PeerAddress(self.peers.endpoint, self.peers.public_key)

    def knows(self, *others: "Node") -> None:
        self.peers.admit_all([other.address for other in others])

    def forgets(self, other: "Node") -> None:
        self.peers.dismiss(other.address)

    def say(self, other: "Node", message: PeerMessage = HELLO) -> None:
        self.peers.send(other.address, message)

    async def hear(self) -> tuple[str, PeerMessage]:
        return await asyncio.wait_for(self.inbox.get(), PATIENCE)


@contextmanager
def nodes(count: int) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            node = Node()
            stack.callback(node.peers.close)
            made.append(node)
        yield made


@contextmanager
def raw_peer(node: Node) -> Iterator[tuple[str, "zmq.Socket[bytes]"]]:
    """The key and the socket of a peer that `node` admits, and that may send anything."""
    public, secret = zmq.curve_keypair()
    node.peers.admit_all([PeerAddress("tcp://127.0.0.9:9", public.decode())])
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sock = context.socket(zmq.DEALER)
    sock.set(zmq.CURVE_SERVERKEY, node.peers.public_key.encode())
    sock.set(zmq.CURVE_PUBLICKEY, public)
    sock.set(zmq.CURVE_SECRETKEY, secret)
    sock.set(zmq.LINGER, 0)
    sock.connect(node.peers.endpoint)
    yield public.decode(), sock
    sock.close()
    context.term()


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)


def on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def wrapped() -> None:
        run(test())

    wrapped.__name__ = test.__name__
    return wrapped


def on_uvloop_in_folder(
    test: Callable[[Path], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    def wrapped(tmp_path: Path) -> None:
        run(test(tmp_path))

    wrapped.__name__ = test.__name__
    return wrapped


async def until(true: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)
    assert true(), what


@on_uvloop
async def test_messages_arrive_under_the_senders_key() -> None:
    with nodes(2) as (a, b):
        a.knows(b)
        b.knows(a)
        a.say(b)
        assert await b.hear() == (a.peers.public_key, HELLO)
        b.say(a)
        assert await a.hear() == (b.peers.public_key, HELLO)
        assert not a.counters and not b.counters


@on_uvloop
async def test_a_daemon_can_be_its_own_peer() -> None:
    with nodes(1) as [a]:
        a.knows(a)
        a.say(a)
        assert await a.hear() == (a.peers.public_key, HELLO)


@on_uvloop
async def test_an_early_peer_waits_and_gets_in_with_the_join() -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for end in (line, incoming):
            patch.setattr(end, "HANDSHAKE", 100 * PATIENCE)  # no second chance
        early, late = stack.enter_context(nodes(2))
        early.knows(late)
        early.say(late)
        await until(lambda: late.counters["handshake_waits"], "the handshake is held")
        assert late.inbox.empty()
        late.knows(early)
        assert await late.hear() == (early.peers.public_key, HELLO)
        assert late.counters == {"handshake_waits": 1}


def has_held(node: Node, handshakes: int) -> bool:
    return node.counters["handshake_waits"] == handshakes


@on_uvloop
async def test_a_peer_that_was_let_in_waits_no_more() -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(listener, "MAX_STRANGERS", 1)
        late, one, two = stack.enter_context(nodes(3))
        for number, early in enumerate((one, two), start=1):
            early.knows(late)
            early.say(late)
            await until(partial(has_held, late, number), "held")
            late.knows(early)
            await late.hear()
        assert late.counters["handshake_refused"] == 0


@on_uvloop
async def test_a_peer_that_starts_before_the_other_is_up_gets_through() -> None:
    with nodes(1) as [early]:
        probe = Node()
        port = int(probe.peers.endpoint.rsplit(":", 1)[1])
        probe.peers.close()
        # A key cannot be known before its daemon is up, so this is a daemon not reachable yet.
        late_keys = KeyPair.new()
        address = PeerAddress(f"tcp://127.0.0.1:{port}", late_keys.text)
        early.peers.admit_all([address])
        early.peers.send(address, HELLO)
        await asyncio.sleep(0.2)  # let a few connects fail
        late = Node(port=port, keys=late_keys)
        try:
            late.knows(early)
            assert await late.hear() == (early.peers.public_key, HELLO)
        finally:
            late.peers.close()


@on_uvloop
async def test_too_many_early_peers_make_room_and_come_back() -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(listener, "MAX_STRANGERS", 1)
        patch.setattr(line, "HANDSHAKE", 0.3)
        late, one, two = stack.enter_context(nodes(3))
        for early in (one, two):
            early.knows(late)
            early.say(late)
        await until(lambda: late.counters["handshake_refused"], "one of two had to go")
        late.knows(one, two)
        heard = {(await late.hear())[0], (await late.hear())[0]}
        assert heard == {one.peers.public_key, two.peers.public_key}


@on_uvloop
async def test_an_early_peer_outlasts_its_handshake() -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(line, "HANDSHAKE", 0.1)
        patch.setattr(incoming, "HANDSHAKE", 100 * PATIENCE)  # so the peer alone stops waiting
        late, early = stack.enter_context(nodes(2))
        early.knows(late)
        early.say(late)
        await until(lambda: late.counters["handshake_waits"] >= 3, "it connects again and again")
        late.knows(early)
        assert await late.hear() == (early.peers.public_key, HELLO)


@on_uvloop
async def test_a_stranger_gets_no_message_in() -> None:
    with nodes(3) as (a, friend, stranger):
        a.knows(friend)
        friend.knows(a)
        stranger.knows(a)
        stranger.say(a)
        await until(lambda: a.counters["handshake_waits"], "the stranger waits")
        friend.say(a)
        assert (await a.hear())[0] == friend.peers.public_key
        assert a.inbox.empty()


@on_uvloop
async def test_a_plain_client_without_curve_gets_nothing_in() -> None:
    with nodes(2) as (a, friend):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        plain = context.socket(zmq.DEALER)
        plain.set(zmq.LINGER, 0)
        plain.connect(a.peers.endpoint)
        plain.send(b"hello")
        a.knows(friend)
        friend.knows(a)
        friend.say(a)
        assert (await a.hear())[0] == friend.peers.public_key
        assert a.inbox.empty()
        plain.close()
        context.term()


@on_uvloop
async def test_a_wrong_server_key_gets_nowhere() -> None:
    """Nobody can pose as a peer: our messages go only to the holder of its key."""
    with nodes(3) as (a, b, other):
        a.knows(b)
        b.knows(a)
        posing = PeerAddress(b.peers.endpoint, other.peers.public_key)
        a.peers.admit_all([posing])
        a.peers.send(posing, Goodbye("job", 0, 1, 5, 6, "secret", "not for b"))
        a.say(b)
        assert await b.hear() == (a.peers.public_key, HELLO)
        assert b.inbox.empty()


@on_uvloop
async def test_a_connected_peer_is_not_heard_once_no_session_names_it() -> None:
    with nodes(2) as (a, b):
        a.knows(b)
        b.knows(a)
        a.say(b)
        await b.hear()
        b.forgets(a)
        a.say(b)
        await until(lambda: b.counters["peer_stranger"], "counted and dropped")
        assert b.inbox.empty()


@on_uvloop
async def test_rubbish_from_a_peer_is_counted_and_the_next_message_heard() -> None:
    with nodes(1) as [b], raw_peer(b) as (key, sock):
        sock.send(b"\xc1")
        sock.send(bytes([0x93, PEER_VERSION + 1, 0, 0x80]))
        sock.send(pack(HELLO))
        assert await b.hear() == (key, HELLO)
        assert b.counters == {"peer_no_msgpack": 1, "peer_other_version": 1}
        assert b.versions == [(key, PEER_VERSION + 1)]


@on_uvloop
async def test_a_message_of_parts_cuts_its_sender_off_before_the_next_part() -> None:
    with nodes(1) as [b], raw_peer(b) as (key, sock):
        sock.send_multipart([b"one", b"two"])
        await until(lambda: b.counters["peer_many_parts"], "the first part was enough")
        while b.inbox.empty():  # libzmq connects again, and loses what it sends meanwhile
            sock.send(pack(HELLO))
            await asyncio.sleep(0.05)
        assert await b.hear() == (key, HELLO)
        assert b.counters == {"peer_many_parts": 1}


@contextmanager
def libzmq_server() -> Iterator[tuple[PeerAddress, "zmq.Socket[bytes]"]]:
    """A ROUTER of libzmq that lets any key in."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    public, secret = zmq.curve_keypair()
    router = context.socket(zmq.ROUTER)
    router.set(zmq.CURVE_SERVER, 1)
    router.set(zmq.CURVE_SECRETKEY, secret)
    router.set(zmq.LINGER, 0)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    yield PeerAddress(f"tcp://127.0.0.1:{port}", public.decode()), router
    router.close()
    context.term()


@on_uvloop
async def test_libzmq_understands_what_we_say() -> None:
    with nodes(1) as [a], libzmq_server() as (address, router):
        a.peers.admit_all([address])
        long = Goodbye("job", 0, 1, 5, 6, "code", "x" * 4096)
        for message in (HELLO, long):
            a.peers.send(address, message)
            await until(lambda: router.poll(0), "it arrives")
            assert router.recv_multipart()[1:] == [pack(message)]


@on_uvloop
async def test_a_peer_that_talks_on_our_line_is_not_listened_to() -> None:
    with nodes(1) as [a], libzmq_server() as (address, router):
        a.peers.admit_all([address])
        a.peers.send(address, HELLO)
        await until(lambda: router.poll(0), "the line is open")
        route, _ = router.recv_multipart()
        router.send_multipart([route, b"anything"])
        await until(lambda: a.counters["line_talks"], "the line was cut")
        assert a.counters == {"line_talks": 1, "line_broken": 1}
        a.peers.send(address, HELLO)
        await until(lambda: router.poll(0), "it is made again")


@on_uvloop
async def test_a_key_has_few_connections_at_once_and_the_newest_stay() -> None:
    keys = KeyPair.new()
    nowhere = PeerAddress("tcp://127.0.0.9:9", key_text(keys.public))
    with nodes(1) as [b], ExitStack() as stack:
        b.peers.admit_all([nowhere])
        made = []
        for _ in range(listener.MAX_PER_KEY + 1):
            peer = await asyncio.to_thread(RawPeer.connect, b.address, keys)
            made.append(stack.enter_context(peer))
        assert b.counters == {"handshake_refused": 1}
        assert made[0].sock.recv(1) == b""
        made[1].say(pack(HELLO))
        assert await b.hear() == (nowhere.key, HELLO)


@on_uvloop
async def test_a_connection_that_no_session_names_any_more_makes_room_as_a_stranger_does() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener, "MAX_STRANGERS", 1)
        a, b = Node(), Node()
    with closing(a.peers), closing(b.peers):
        a.knows(b)
        b.knows(a)
        a.say(b)
        await b.hear()
        b.forgets(a)
        assert not b.counters
        with socket.create_connection(b.address.target):
            await until(lambda: b.counters["handshake_refused"], "it has to go")


@on_uvloop
async def test_who_says_nothing_is_hung_up_on() -> None:
    with pytest.MonkeyPatch.context() as patch, nodes(1) as [b]:
        patch.setattr(incoming, "HANDSHAKE", 0.05)
        with socket.create_connection(b.address.target, PATIENCE) as silent:
            assert await asyncio.to_thread(silent.recv, 100) == greeting(as_server=True)
            assert await asyncio.to_thread(silent.recv, 100) == b""
        assert not b.counters


@on_uvloop
async def test_who_speaks_another_protocol_is_hung_up_on_and_counted() -> None:
    with nodes(1) as [b], socket.create_connection(b.address.target, PATIENCE) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n" * 10)
        await until(lambda: b.counters["handshake_malformed"], "counted")
        assert b.counters == {"handshake_malformed": 1}


@on_uvloop
async def test_strangers_of_one_address_do_not_push_out_those_of_another() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listener, "MAX_STRANGERS", 8)
        late = Node()
    with closing(late.peers), nodes(1) as [early], ExitStack() as stack:
        other = socket.create_connection(late.address.target, PATIENCE, ("127.0.0.2", 0))
        stack.enter_context(other)
        for _ in range(100):
            stack.enter_context(socket.create_connection(late.address.target, PATIENCE))
        await until(lambda: late.counters["handshake_refused"] == 93, "all others had to go")
        other.setblocking(False)
        assert other.recv(100) == greeting(as_server=True)
        with pytest.raises(BlockingIOError):
            other.recv(100)
        early.knows(late)
        late.knows(early)
        early.say(late)
        await late.hear()


@on_uvloop
async def test_an_oversized_message_cuts_only_its_sender_off() -> None:
    with nodes(2) as (b, friend), raw_peer(b) as (_, sock):
        b.knows(friend)
        friend.knows(b)
        sock.send(b"\xc0" * (MAX_PEER_FRAME + 1))
        friend.say(b)
        assert (await b.hear())[0] == friend.peers.public_key
        assert "peer_too_long" not in b.counters, "it was stopped before it was read"


@on_uvloop
async def test_a_burst_beyond_one_turn_is_read_to_its_end() -> None:
    """A turn reads one message, and nothing more comes after the burst."""
    with nodes(2) as (a, b):
        a.knows(b)
        b.knows(a)
        for _ in range(MAX_QUEUED):
            a.say(b)
        for _ in range(MAX_QUEUED):
            await b.hear()


@on_uvloop
async def test_a_flood_leaves_others_their_turn() -> None:
    with nodes(1) as [b], ExitStack() as stack:
        made = []
        for port in (9, 10):
            keys = KeyPair.new()
            b.peers.admit_all([PeerAddress(f"tcp://127.0.0.9:{port}", key_text(keys.public))])
            peer = await asyncio.to_thread(RawPeer.connect, b.address, keys)
            made.append((key_text(keys.public), stack.enter_context(peer)))
        (_, many), (key, few) = made
        for _ in range(200):  # all of it is there before the loop turns again
            many.say(pack(HELLO))
        few.say(pack(HELLO))
        assert key in {(await b.hear())[0] for _ in range(4)}


@on_uvloop
async def test_a_command_of_the_protocol_is_no_message() -> None:
    keys = KeyPair.new()
    with nodes(1) as [b]:
        b.peers.admit_all([PeerAddress("tcp://127.0.0.9:9", key_text(keys.public))])
        with await asyncio.to_thread(RawPeer.connect, b.address, keys) as peer:
            peer.say(b"\x04PING\0\0", COMMAND)
            peer.say(pack(HELLO))
            assert await b.hear() == (key_text(keys.public), HELLO)
        assert not b.counters


@on_uvloop
async def test_a_peer_that_reads_late_gets_all_that_was_taken() -> None:
    keys, long = KeyPair.new(), Goodbye("job", 0, 1, 5, 6, "code", "x" * 4096)
    address, port = listening(keys)
    with port, nodes(1) as [a]:
        a.peers.admit_all([address])
        with await asyncio.to_thread(RawPeer.accept, port, keys) as peer:
            taken = 0
            while not a.counters["peer_queue_full"]:
                a.peers.send(address, long)
                taken += 1
            for _ in range(taken - 1):
                assert await asyncio.to_thread(peer.hear) == pack(long)


@on_uvloop
async def test_what_was_said_leaves_while_everything_closes() -> None:
    """The peer is not connected yet, and the loop turns no more."""
    keys, heard = KeyPair.new(), list[bytes]()
    address, port = listening(keys)

    def peer() -> None:
        with RawPeer.accept(port, keys) as accepted:
            heard.append(accepted.hear())

    other = threading.Thread(target=peer)
    with port:
        other.start()
        a = Node()
        a.peers.admit_all([address])
        a.peers.send(address, HELLO)
        a.peers.close()
        other.join(PATIENCE)
    assert heard == [pack(HELLO)]


@on_uvloop
async def test_an_unreachable_peer_costs_a_bounded_queue() -> None:
    with nodes(1) as [a]:
        nobody = PeerAddress("tcp://127.0.0.9:9", a.peers.public_key)
        a.peers.admit_all([nobody])
        for _ in range(MAX_QUEUED + 10):
            a.peers.send(nobody, HELLO)
        assert a.counters["peer_queue_full"] == 10


@on_uvloop
async def test_the_last_word_leaves_after_the_line_is_closed() -> None:
    with nodes(2) as (a, b):
        a.knows(b)
        b.knows(a)
        a.say(b)
        a.forgets(b)
        assert await b.hear() == (a.peers.public_key, HELLO)


@on_uvloop
async def test_sessions_share_a_line_until_the_last_one_ends() -> None:
    with nodes(2) as (a, b):
        b.knows(a)
        a.knows(b)
        a.knows(b)
        assert len(a.peers) == 1
        a.forgets(b)
        a.say(b)
        await b.hear()
        a.forgets(b)
        assert len(a.peers) == 0


@on_uvloop
async def test_too_many_peers_are_refused_whole() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "MAX_LINES", 8)
        a = Node()
    try:
        ports = range(1, 20)
        addresses = [PeerAddress(f"tcp://127.0.0.9:{p}", a.peers.public_key) for p in ports]
        with pytest.raises(TooMany):
            a.peers.admit_all(addresses)
        assert len(a.peers) == 0
    finally:
        a.peers.close()


@on_uvloop
async def test_an_address_that_is_taken_is_named() -> None:
    with nodes(1) as [a]:
        port = int(a.peers.endpoint.rsplit(":", 1)[1])
        with pytest.raises(AddressUnavailable, match=rf"127\.0\.0\.1 port {port}"):
            Node(port=port)
        with pytest.raises(AddressUnavailable, match=r"192\.0\.2\.1"):
            Node(address="192.0.2.1")


@on_uvloop
async def test_ipv6_works() -> None:
    a = Node("::1")
    try:
        assert a.peers.endpoint.startswith("tcp://[::1]:")
        a.knows(a)
        a.say(a)
        assert await a.hear() == (a.peers.public_key, HELLO)
    finally:
        a.peers.close()


def named(folder: Path, *hosts: Identity) -> Path:
    host_with_keys(folder, "home")
    authorise(folder, *hosts)
    return folder / AUTHORISED


@on_uvloop_in_folder
async def test_a_key_that_is_not_authorised_is_turned_away_and_told(folder: Path) -> None:
    friend, stranger = Identity("friend", KeyPair.new()), Identity("stranger", KeyPair.new())
    strict = Node(folder=named(folder, friend))
    known, other = Node(keys=friend.pair), Node(keys=stranger.pair)
    with closing(strict.peers), closing(known.peers), closing(other.peers):
        strict.knows(known, other)  # a Join alone, and so the job's store, lets nobody in
        for node in (other, known):
            node.knows(strict)
            node.say(strict)
        assert await strict.hear() == (friend.pair.text, HELLO)
        await until(lambda: other.turned_away, "the stranger is told")
        assert other.turned_away[0] == (strict.address, "not_authorised")
        assert other.counters["line_turned_away"] and strict.counters["peer_not_authorised"]
        strict.say(other)
        assert strict.counters["peer_revoked"] == 1, "nor is it spoken to"
        assert strict.inbox.empty() and other.inbox.empty() and not known.turned_away


@on_uvloop_in_folder
async def test_a_key_that_is_revoked_is_hung_up_on_and_turned_away(folder: Path) -> None:
    friend = Identity("friend", KeyPair.new())
    directory = named(folder, friend)
    strict, known = Node(folder=directory), Node(keys=friend.pair)
    with closing(strict.peers), closing(known.peers):
        strict.knows(known)
        known.knows(strict)
        known.say(strict)
        strict.say(known)
        await strict.hear()
        await known.hear()
        revoke(folder, friend)
        strict.peers.revoke(strict.peers.authorised.read().revoked)
        assert strict.counters["peer_revoked"] == 1
        await until(lambda: known.turned_away, "its line comes back, and is turned away")
        known.say(strict)
        strict.say(known)
        assert strict.inbox.empty() and known.inbox.empty()
        authorise(folder, friend)
        strict.peers.authorised.read()
        assert (await strict.hear())[0] == friend.pair.text, "and let in when it is authorised"
        strict.forgets(known)


@on_uvloop_in_folder
async def test_what_waits_for_a_key_that_is_revoked_is_not_said(folder: Path) -> None:
    friend = Identity("friend", KeyPair.new())
    address, port = listening(friend.pair)
    strict = Node(folder=named(folder, friend))
    with closing(strict.peers), port:
        strict.peers.admit_all([address])
        strict.peers.send(address, HELLO)
        with await asyncio.to_thread(RawPeer.accept, port, friend.pair) as peer:
            assert await asyncio.to_thread(peer.hear) == pack(HELLO)
            strict.peers.revoke({friend.pair.text})
            assert await asyncio.to_thread(peer.sock.recv, 1) == b"", "the line is cut"


# --- signs that a daemon has ended -----------------------------------------------------------


@on_uvloop
async def test_a_daemon_that_has_ended_is_told_of_by_its_closed_port() -> None:
    with nodes(1) as [first]:
        second = Node()
        first.knows(second)
        second.knows(first)
        first.say(second)
        await second.hear()
        assert not first.lost
        address = second.address
        second.peers.close()
        await until(lambda: first.lost, "a sign")
        assert set(first.lost) == {(address, REFUSED)}


@on_uvloop
async def test_a_daemon_that_never_was_there_gives_no_sign() -> None:
    """It has yet to start: the join waits for it."""
    with nodes(1) as [first]:
        gone = Node()
        first.knows(gone)
        gone.peers.close()
        await asyncio.sleep(0.3)
        assert not first.lost


@on_uvloop
async def test_a_connection_that_is_cut_and_made_anew_is_a_sign() -> None:
    """Another daemon may have taken the place of the first."""
    with nodes(2) as [first, second]:
        first.knows(second)
        second.knows(first)
        first.say(second)
        await second.hear()
        second.peers.revoke([first.peers.public_key])

        await until(lambda: first.lost, "a sign")
        assert set(first.lost) == {(second.address, REOPENED)}


@on_uvloop
async def test_a_connection_that_ends_and_cannot_be_made_anew_is_a_sign() -> None:
    """What stands between two hosts may take connections to a port that is closed."""
    pair = KeyPair.new()
    address, port = listening(pair)
    with nodes(1) as [first], port:
        first.peers.admit_all([address])
        first.peers.send(address, HELLO)
        with await asyncio.to_thread(RawPeer.accept, port, pair) as peer:
            await asyncio.to_thread(peer.hear)
        between, _ = await asyncio.to_thread(port.accept)
        assert not first.lost
        between.close()
        await until(lambda: first.lost, "a sign")
        assert set(first.lost) == {(address, ENDED)}
