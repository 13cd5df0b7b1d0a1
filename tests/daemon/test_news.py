"""Peers' messages at a real daemon; the peer is in the test's hand and may say anything."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from dlcpd.contract.messages import VERSION, Joined, Welcome
from dlcpd.daemon.peers.peer_messages import (
    PEER_VERSION,
    Abort,
    AbortedRow,
    Goodbye,
    PeerHello,
)
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.io.commands import UdpAddress
from tests.daemon.kit import Client, Daemon, configuration, joins
from tests.daemon.test_peers import Node, on_uvloop, until

HELLO = PeerHello(
    job="job",
    from_rank=1,
    to_rank=0,
    session=50,
    echo=0,
    answer=True,
    serving=True,
    host="host-x",
    proof="",
    token=9,
    secret=32 * "a",
    seed=7,
    endpoints=[UdpAddress("127.0.0.1", 5)],
    engines=1,
    world_size=2,
    chunk_bytes=0,
    digest_every=0,
    checksum=1,
    data_encryption=0,
    round_trip=250,
)
Message = TypeVar("Message", Abort, Goodbye)
Stage = Callable[[Client, "Actor"], Coroutine[Any, Any, None]]


class Actor:
    """Rank 1 of the job, by hand: `node` speaks under its key."""

    def __init__(self, node: Node, daemon: Welcome) -> None:
        self.node, self.daemon = node, PeerAddress(daemon.endpoint, daemon.public_key)
        node.peers.admit_all([self.daemon])
        self.theirs = HELLO

    def say(self, message: Any) -> None:
        self.node.peers.send(self.daemon, message)

    async def hear(self, kind: type[Message]) -> Message:
        """The next message, of this kind; hellos in between are passed over."""
        while isinstance(message := (await self.node.hear())[1], PeerHello):
            pass
        assert isinstance(message, kind), message
        return message

    async def meet(self) -> PeerHello:
        """Hear the daemon's hello, and what a good answer would be."""
        _, hello = await self.node.hear()
        assert isinstance(hello, PeerHello)
        self.theirs = hello
        return replace(
            HELLO,
            echo=hello.session,
            answer=False,
            world_size=hello.world_size,
            chunk_bytes=hello.chunk_bytes,
            digest_every=hello.digest_every,
        )

    def goodbye(self, **changes: Any) -> Goodbye:
        good = Goodbye("job", 1, 0, HELLO.session, self.theirs.session, "peer_lost", "farewell")
        return replace(good, **changes)

    def abort(self, **changes: Any) -> Abort:
        echo = self.theirs.session
        good = Abort("job", 1, 0, HELLO.session, echo, 0, [AbortedRow(6, 3, "x", -1)])
        return replace(good, **changes)


def on_stage(test: Stage, *, engine: str = "obedient") -> Callable[[Path], None]:
    """Run `test` with a client that has sent Join, and the actor that it joins with; `engine` is
    the stand-in's mode, "" the real one."""

    def wrapped(tmp_path: Path) -> None:
        async def play() -> None:
            node = Node()
            actor = Actor(node, client.greet())
            peer = Welcome(VERSION, "host-x", node.peers.endpoint, node.peers.public_key)
            client.send(joins("job", [peer, peer])[0])
            try:
                await test(client, actor)
            finally:
                node.peers.close()

        with Daemon(configuration(tmp_path), mode=engine) as daemon, daemon.client() as client:
            on_uvloop(play)()

    wrapped.__name__ = test.__name__
    return wrapped


async def counted(client: Client, reason: str, times: int = 1) -> None:
    await until(lambda: client.counters().get(reason, 0) == times, reason)


async def joined(client: Client, actor: Actor) -> None:
    actor.say(await actor.meet())
    await asyncio.to_thread(client.expect, Joined)


@on_stage
async def test_a_hello_that_confirms_opens_the_session(client: Client, actor: Actor) -> None:
    await joined(client, actor)
    [peer] = client.command("OpenSession")["peers"]
    assert (peer["rank"], peer["host"], peer["token_out"]) == (1, "host-x", 9)
    assert peer["endpoints"] == [["127.0.0.1", 5]]
    assert peer["token_in"] == actor.theirs.token


@on_stage
async def test_a_hello_is_repeated_until_it_is_answered(client: Client, actor: Actor) -> None:
    for _ in range(4):
        await actor.meet()
    actor.say(await actor.meet())
    await asyncio.to_thread(client.expect, Joined)


@on_stage
async def test_a_rank_speaks_only_under_its_own_key(client: Client, actor: Actor) -> None:
    good = await actor.meet()
    actor.say(replace(good, from_rank=0))  # the client's own rank: nobody's to claim
    await counted(client, "peer_unknown_session")
    impostor = Node()
    try:
        # The daemon lets the impostor in: another client names it for another job.
        peer = Welcome(VERSION, "host-y", impostor.peers.endpoint, impostor.peers.public_key)
        request = joins("other job", [peer, peer])[0]
        with Client.connect(Path(client.sock.getpeername())) as other:
            other.greet()
            other.send(request)
            acting = Actor(impostor, Welcome(VERSION, "", actor.daemon.endpoint, actor.daemon.key))
            acting.say(good)
            await counted(client, "peer_wrong_key")
            assert {s["state"] for s in client.status()["sessions"]} == {"joining"}
    finally:
        impostor.peers.close()
    actor.say(good)
    await asyncio.to_thread(client.expect, Joined)


@on_stage
async def test_news_for_nobody_are_counted(client: Client, actor: Actor) -> None:
    good = await actor.meet()
    wrong = [replace(good, job="another"), replace(good, to_rank=5), replace(good, from_rank=5)]
    for number, hello in enumerate(wrong, start=1):
        actor.say(hello)
        await counted(client, "peer_unknown_session", number)


@on_stage
async def test_stale_news_do_nothing_and_present_ones_do(client: Client, actor: Actor) -> None:
    await joined(client, actor)
    client.command("OpenSession")
    stale = [{"session": 49}, {"session": 51}, {"echo": 1}]
    for number, changes in enumerate(stale):
        actor.say(actor.goodbye(**changes))
        actor.say(actor.abort(**changes))
        await counted(client, "peer_stale", 2 * number + 2)
    actor.say(actor.abort(aborted=[AbortedRow(6, 3, "x", -1), AbortedRow(6, 4, "y", 0)]))
    aborted = client.command("AbortOperations")["aborted"]
    assert aborted == [[1, 6, 3, "x", -1], [1, 6, 4, "y", 0]]
    actor.say(actor.goodbye())
    assert client.command("PeerGone")["text"] == "farewell"
    actor.say(actor.goodbye())  # once is enough
    await counted(client, "peer_stale", 7)


@on_stage
async def test_an_abort_while_joining_does_nothing(client: Client, actor: Actor) -> None:
    good = await actor.meet()
    actor.say(actor.abort())
    await counted(client, "peer_stale")
    actor.say(good)
    await asyncio.to_thread(client.expect, Joined)


@on_stage
async def test_a_peer_that_joins_again_is_gone_for_the_old_session(
    client: Client, actor: Actor
) -> None:
    await joined(client, actor)
    actor.say(replace(HELLO, session=49))  # older: overtaken, and of no interest
    actor.say(replace(HELLO, session=51))
    gone = client.command("PeerGone")
    assert gone["rank"] == 1 and "joined again" in gone["text"]


@on_stage
async def test_a_goodbye_to_a_join_refuses_it_with_its_reason(client: Client, actor: Actor) -> None:
    good = await actor.meet()
    actor.say(replace(good, echo=0))
    actor.say(actor.goodbye(code="ranks_disagree", text="rank 2 is odd"))
    text = await asyncio.to_thread(client.refused, "ranks_disagree")
    assert "rank 1 on host-x left while joining: rank 2 is odd" in text


@on_stage
async def test_a_peers_odd_code_is_not_passed_on(client: Client, actor: Actor) -> None:
    good = await actor.meet()
    actor.say(replace(good, echo=0))
    actor.say(actor.goodbye(code="not_permitted"))
    await asyncio.to_thread(client.refused, "peer_lost")


@on_stage
async def test_another_protocol_version_refuses_the_join_by_name(
    client: Client, actor: Actor
) -> None:
    await actor.meet()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dlcpd.daemon.peers.peer_messages.OLDEST_PEER", PEER_VERSION + 1)
        actor.say(HELLO)
    text = await asyncio.to_thread(client.refused, "ranks_disagree")
    assert (
        f"speaks version {PEER_VERSION}" in text
        and f"rank 1 on host-x speaks {PEER_VERSION + 1}" in text
    )


@on_stage
async def test_a_client_that_leaves_says_goodbye_once(client: Client, actor: Actor) -> None:
    await joined(client, actor)
    client.emit("SessionFailed", rank=1, code="peer_lost", text="silent")
    goodbye = await actor.hear(Goodbye)
    assert (goodbye.session, goodbye.echo) == (actor.theirs.session, HELLO.session)
    assert goodbye.code == "peer_lost" and "silent" in goodbye.text
    client.emit("SessionFailed", rank=1, code="peer_lost", text="again")
    failures = [(6, 4, [1], "peer_lost", "marker", 0), (6, 5, [1], "ranks_disagree", "marker", 0)]
    client.emit("OperationsFailed", failures=failures)
    rows = (await actor.hear(Abort)).aborted
    assert [(row.stream, row.operation, row.lost) for row in rows] == [(6, 4, 0), (6, 5, -1)]
