"""When one rank is late, all others abort everything at once, and each tells each."""

import asyncio
import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from dlcpd.contract.messages import Failed, Joined
from dlcpd.daemon.peers.peer_messages import AbortedRow, PeerMessage
from tests.daemon.kit import Client, Daemon, joins
from tests.daemon.test_news import Actor, joined, on_stage
from tests.daemon.test_peers import until
from tests.daemon.test_two_hosts import SUBMIT, Rank, all_reduce, close, ranks_of, start, with_arena

RANKS: Final = 64
OPERATIONS: Final = 50
DEADLINE: Final = 30.0  # seconds; two cores take 10 to 20 for the 200,000 transfers before it, and
PER_JOIN: Final = 4  # times as long as the ranks take to join, where the machine is busy
MOST: Final = 200.0  # seconds
JOINING: Final = 200.0  # seconds; a quiet machine takes six, and a busy one more than 90
LATE: Final = f"{RANKS} ranks, {OPERATIONS} operations each, one late: all hear, daemons live"
ABORTS: Final = 50_000


def storm_of(daemons: list[Daemon], stack: ExitStack) -> list[Rank]:
    """All ranks of one job, half on each daemon."""
    clients = [stack.enter_context(daemons[n % 2].client()) for n in range(RANKS)]
    # 1,024 pairs of ranks try their paths before any of them has joined.
    requests = joins("storm", [client.greet() for client in clients], timeout=JOINING)
    for client, request in zip(clients, requests, strict=True):
        client.send(with_arena(request))
    for client in clients:
        client.sock.settimeout(JOINING)
        client.expect(Joined)
    return [Rank(client) for client in clients]


def failures(ranks: list[Rank], patience: float) -> tuple[list[list[Failed]], float]:
    """What each rank hears, and when the last of them has heard of every operation."""
    heard: list[list[Failed]] = [[] for _ in ranks]
    lanes = {rank.client.lane.fileno(): n for n, rank in enumerate(ranks) if rank.client.lane}
    until = time.monotonic() + patience
    while any(len(rows) < OPERATIONS for rows in heard) and time.monotonic() < until:
        for lane in select.select(list(lanes), [], [], 1.0)[0]:
            message = ranks[lanes[lane]].answer()
            assert isinstance(message, Failed)
            heard[lanes[lane]].append(message)
    return heard, time.monotonic()


@pytest.mark.check(3, LATE)
@pytest.mark.timeout(600)
def test_a_late_rank(tmp_path: Path, measured: Callable[[str], None]) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(start(tmp_path, number)) for number in (1, 2)]
        started = time.monotonic()
        *punctual, _ = storm_of(daemons, stack)
        began = time.monotonic()
        deadline = min(max(DEADLINE, PER_JOIN * (began - started)), MOST)
        for rank in punctual:
            for number in range(1, OPERATIONS + 1):
                place = 256 * (number - 1)
                rank.submit(
                    replace(
                        SUBMIT,
                        operation=number,
                        deadline=deadline,
                        submitted=began,
                        input=place,
                        output=place,
                        input_count=64,
                        output_count=64,
                    )
                )
        heard, ended = failures(punctual, deadline + 170.0)
        codes = {failed.code for rows in heard for failed in rows}
        assert codes <= {"deadline_exceeded", "operation_aborted"}
        assert {len(rows) for rows in heard} == {OPERATIONS}
        assert all("63" in rows[0].text for rows in heard), "who was late"
        measured(f"the last one {ended - began - deadline:.1f} s after the deadline")
        others = ranks_of(daemons, "another job")
        all_reduce(others)
        close(others)


@pytest.mark.check(3, f"{ABORTS:,} aborts of one peer: other sessions go on")
@pytest.mark.timeout(300)
def test_a_flood_of_aborts(tmp_path: Path) -> None:
    async def flood(client: Client, actor: Actor) -> None:
        await joined(client, actor)
        with client.connect(Path(client.sock.getpeername())) as other:
            other.greet()
            for number in range(ABORTS):
                await say(actor, actor.abort(aborted=[AbortedRow(0, 1 + number, "x", -1)]))
            assert client.status()["sessions"][0]["state"] == "open"
            await say(actor, actor.goodbye())
            await until(lambda: client.status()["sessions"][0]["state"] == "broken", "it came last")
            assert other.status()["sessions"] is not None

    on_stage(flood, engine="")(tmp_path)


async def say(actor: Actor, message: PeerMessage) -> None:
    """Have it sent, as soon as there is room for it."""
    full = actor.node.counters["peer_queue_full"]
    actor.say(message)
    while actor.node.counters["peer_queue_full"] > full:
        full += 1
        await asyncio.sleep(0.001)
        actor.say(message)
