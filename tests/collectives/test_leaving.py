"""What is complete on one rank reaches all others, whichever rank leaves first."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.contract.errors import Peer, PeerLost, SessionClosed
from dlcpd.core.session.events import OperationDone, OperationFailed, SessionBroken
from dlcpd.schedules.catalog import CATALOG, Place, Task
from dlcpd.schedules.derive import FOREST
from dlcpd.schedules.model import Program
from tests.schedules.networks import uneven

ENDED = SessionClosed("the client ended")
LATE = 25.0  # seconds until the last rank comes
CHUNK = 4096  # bytes
COLLECTIVES = [
    (collective, schedule)
    for collective, schedules in CATALOG.items()
    for schedule in schedules
    if collective not in {"send", "receive"}
]
Leavers = set[int]


def program(collective: str, schedule: str, rank: int, world: int, size: int) -> Program:
    """Of a rank; each has `size` bytes for each other."""
    whole = collective in {"all_reduce", "broadcast", "reduce"}
    task = Task(
        collective=collective,
        size=size * world if whole else size,
        sizes=(size,) * world,
        sends=(size,) * world,
        receives=(size,) * world,
    )
    network = uneven(world) if schedule == FOREST else None
    place = Place(rank, tuple((r,) for r in range(world)), CHUNK, network)
    recipe = CATALOG[collective][schedule]
    return recipe.build(rank, *recipe.arguments(task, place))


def events(net: SimNetwork, rank: int, kind: type) -> list[object]:
    return [event for event in net.events[rank] if isinstance(event, kind)]


def let_go(net: SimNetwork, gone: Leavers, over: Leavers, operations: int = 1) -> None:
    """Every rank with its results leaves; peers hear of it, and again when all was delivered."""
    for rank, session in enumerate(net.sessions):
        if rank not in gone and len(events(net, rank, OperationDone)) == operations:
            gone.add(rank)
            session.leave(ENDED)
            for peer in session.flows:
                net.sessions[peer].peer_left(
                    rank, session.departures.begun_with(peer), ENDED, net.now
                )
        if rank in gone - over and not session.operations:
            over.add(rank)
            for peer in session.flows:
                error = PeerLost("it ended", Peer(rank, f"host{rank}"))
                net.sessions[peer].peer_gone(rank, error, net.now)
            net.cut.add(rank)


def run(net: SimNetwork, seconds: float, gone: Leavers, over: Leavers, operations: int = 1) -> None:
    """Let ranks leave as soon as they can."""
    until = net.now + seconds
    while net.now < until:
        net.run(until=0.02)
        let_go(net, gone, over, operations)
        net.now += 0.02 if net.now + 1.0 > until or len(gone) < len(net.sessions) - 1 else 1.0


def leave_early(
    net: SimNetwork,
    collective: str,
    schedule: str,
    late: int,
    size: int,
    *,
    operations: int = 1,
    wait: float = LATE,
) -> None:
    """Each rank leaves once it has its results; rank `late` submits `wait` seconds later."""
    gone: Leavers = set()
    over: Leavers = set()
    world = net.world_size

    def submit(rank: int) -> None:
        for number in range(1, operations + 1):
            arrays = [np.full(world * size, rank, np.uint8).view(np.float32) for _ in range(2)]
            made = net.operation(
                rank,
                number,
                arrays[0],
                output=arrays[1],
                terms="the same",
                in_place=False,
                program=program(collective, schedule, rank, world, size),
            )
            net.sessions[rank].submit(made, 0, net.now)

    for rank in range(world):
        if rank != late:
            submit(rank)
    run(net, 0.5, gone, over, operations)
    net.now += wait
    submit(late)
    run(net, 4.0, gone, over, operations)
    for rank in range(world):
        assert not events(net, rank, OperationFailed), rank
        assert len(events(net, rank, OperationDone)) == operations, (rank, gone, over)
    assert over == set(range(world))


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("size", [64, 6400])
@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize(("collective", "schedule"), COLLECTIVES)
def test_the_last_rank_gets_what_the_others_completed(
    collective: str, schedule: str, late: int, size: int, loss: float
) -> None:
    net = SimNetwork(4, SimLink(loss=loss), seed=late, peer_timeout=LATE * 2)
    leave_early(net, collective, schedule, late, size)


@pytest.mark.parametrize("seed", range(20))
def test_data_that_came_before_their_place_was_free_are_not_owed(seed: int) -> None:
    """In a ring, the neighbour's last data may wait for a send from the same place."""
    net = SimNetwork(4, SimLink(loss=0.1), seed=seed, peer_timeout=LATE * 2)
    leave_early(net, "all_reduce", "ring", 3 * (seed % 2), 64)


def test_a_rank_that_is_asked_for_something_new_is_lost_and_no_other_is() -> None:
    net = SimNetwork(3)
    session = net.sessions[0]
    session.leave(ENDED)
    for peer in (1, 2):
        net.sessions[peer].peer_left(0, session.departures.begun_with(peer), ENDED, net.now)
        net.sessions[peer].peer_gone(0, PeerLost("it ended", Peer(0, "host0")), net.now)
    net.run(until=0.1)
    assert not events(net, 1, SessionBroken)  # ranks 1 and 2 may go on without it
    net.now += 7.0
    net.submit(1, 1, np.ones(600, np.float32))
    net.run(until=0.1)
    [failed] = events(net, 1, OperationFailed)
    assert isinstance(failed, OperationFailed)
    assert failed.code == "peer_lost"
    assert failed.peer.rank == 0
    assert "rank 0 on host0 left 7.0 s ago" in failed.text
    assert events(net, 1, SessionBroken)


def test_an_operation_that_a_peer_left_before_fails_at_once() -> None:
    net = SimNetwork(2)
    net.submit(1, 1, np.ones(600, np.float32))
    net.run(until=0.01)
    net.sessions[1].peer_left(0, [], ENDED, net.now)
    net.run(until=0.01)
    [failed] = events(net, 1, OperationFailed)
    assert isinstance(failed, OperationFailed)
    assert "left 0.0 s ago" in failed.text


def test_a_lost_rank_takes_no_result_from_the_others() -> None:
    """Rank 0 has broadcast to 1 and 2; rank 2 is lost before rank 1 comes."""
    net = SimNetwork(3, peer_timeout=0.5)
    size = 4 * 6400

    def submit(rank: int) -> None:
        array = np.full(size, 1 + rank, np.uint8)
        made = net.operation(
            rank,
            1,
            array.view(np.float32),
            terms="the same",
            in_place=False,
            program=program("broadcast", "direct", rank, 3, size // 3 // 64 * 64),
        )
        net.sessions[rank].submit(made, 0, net.now)

    submit(0)
    net.run(until=0.1)
    assert events(net, 0, OperationDone)
    net.sessions[0].fail_all(2, PeerLost("rank 2 is silent", Peer(2, "host2")))
    submit(1)
    net.run(until=0.4)
    assert events(net, 1, OperationDone)
