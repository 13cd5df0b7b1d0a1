"""Promises P1 to P5 where a slow host owns nothing, and in racks: 1 % of bounded loss at 1 %."""

from collections import Counter

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import Tensor, copies, draw_whole
from dlcpd.numerics.returning import add_back
from dlcpd.schedules.builders.forest import all_reduce
from dlcpd.schedules.forest import Forest
from dlcpd.schedules.model import Program, Send
from dlcpd.schedules.shares import one_switch, two_levels
from tests.schedules.networks import network_of, uneven

NAME = "layer.weight"
SEGMENT, CHUNK = 64, 9600  # bytes; 150 segments, of which 1 % is one
BOUND = 0.01
COUNT, STEPS, HOSTS = 28_801, 3, 4  # elements; the last share and its last segment are shorter
FORESTS = {
    "slow host": one_switch(uneven(HOSTS), CHUNK).forest,
    "racks": two_levels(network_of([100] * HOSTS, ((0, 2), (1, 3)), 50), CHUNK).forest,
}


def programs(forest: Forest) -> list[Program]:
    return [all_reduce(rank, 4 * COUNT, forest) for rank in range(HOSTS)]


def simulated(seed: int) -> SimNetwork:
    link = SimLink(loss=0.01, jitter=40e-6)
    return SimNetwork(HOSTS, link, seed=seed, segment_size=SEGMENT, chunk_segments=CHUNK // SEGMENT)


def reduce(
    net: SimNetwork, number: int, parts: list[Tensor], of_ranks: list[Program], loss: float = BOUND
) -> list[Tensor]:
    held = copies(parts)
    for rank, part in enumerate(held):
        net.submit(rank, number, part, program=of_ranks[rank], max_loss=loss, name=NAME)
    net.run()
    assert len({part.tobytes() for part in held}) == 1, "P2"
    return held


def residual(net: SimNetwork, rank: int) -> Tensor:
    """What a rank holds for the next operation, laid out as its tensor; it stays there."""
    tensor, key = np.zeros(COUNT, np.float32), (NAME, "float32", COUNT)
    holes = net.accounts[rank].residuals.take(key)
    add_back(tensor.view(np.uint8), holes, "float32")
    net.accounts[rank].residuals.put(key, holes)
    return tensor


@pytest.mark.parametrize("name", FORESTS)
def test_the_promises_hold(name: str) -> None:
    net, of_ranks = simulated(7), programs(FORESTS[name])
    produced, delivered = np.zeros(COUNT), np.zeros(COUNT)
    victims: list[set[tuple[int, int]]] = []  # rank and segment, by step
    for step in range(1, STEPS + 1):
        parts = draw_whole(HOSTS, COUNT, step)
        produced += np.sum(parts, axis=0)
        delivered += reduce(net, step, parts, of_ranks)[0]
        kept = [residual(net, rank) for rank in range(HOSTS)]
        assert (delivered + np.sum(kept, axis=0) == produced).all(), "P4"
        found = [np.unique(np.flatnonzero(each) * 4 // SEGMENT).tolist() for each in kept]
        victims.append({(rank, at) for rank, every in enumerate(found) for at in every})
    assert all(victims) and not set.intersection(*victims), "P5: never the same segments"
    exact = draw_whole(HOSTS, COUNT, STEPS + 1)
    produced += np.sum(exact, axis=0)
    delivered += reduce(net, STEPS + 1, exact, of_ranks, 0.0)[0]
    assert (delivered == produced).all(), "P1 and P4: an exact operation brings the rest home"
    assert not any(accounts.residuals.size for accounts in net.accounts)
    assert_bound(net)


def assert_bound(net: SimNetwork) -> None:
    """P3, in the ledgers of both sides, which agree."""
    books: list[Counter[tuple[int, int, int, int]]] = [Counter(), Counter()]
    for rank, accounts in enumerate(net.accounts):
        for row in accounts.ledger:
            assert row.segments <= BOUND * row.out_of and row.operation <= STEPS
            key = (row.operation, row.sender, row.owner, row.transfer)
            books[row.sender == rank][key] += row.segments
    assert books[0] == books[1] and books[0]


def test_the_shares_are_unequal_and_sums_between_racks_are_never_lossy() -> None:
    assert {tree.root for tree in FORESTS["slow host"].trees} == {1, 2, 3}
    crossing = [
        step.lossy
        for rank, program in enumerate(programs(FORESTS["racks"]))
        for step in program.steps
        if isinstance(step, Send) and rank % 2 != step.peer % 2
    ]
    assert crossing and not any(crossing)
