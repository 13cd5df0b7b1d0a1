"""Ranges of a session in torch.profiler: waits for room, and what fails."""

from collections import Counter

import pytest
import torch

from dlcp_client.ranges import PREFIX, SUBMIT, WAIT, WAIT_FOR_ROOM
from dlcpd.contract.errors import ArenaFull, BadTensor, PeerLost
from dlcpd.contract.policy import exact
from tests.c10d.ranges_programs import Row, profiled
from tests.client.stand_in import ARENA, StandIn

ALL_REDUCE = f"{PREFIX}all_reduce"
HALF = ARENA // 8 + 1  # float32 elements that take more than half of the arena


def names(rows: list[Row]) -> Counter[str]:
    return Counter(name for name, _ in rows)


def test_an_operation_that_waits_for_room_shows_it(world: StandIn) -> None:
    world.answering = False
    session, rows = world.sessions[0], list[Row]()
    session.all_reduce(torch.ones(HALF))
    with profiled(rows), pytest.raises(ArenaFull):
        session.all_reduce(torch.ones(HALF), policy=exact(deadline=0.05))
    found = names(rows)
    assert found.pop(WAIT_FOR_ROOM) >= 1, "more where something else came meanwhile"
    assert found == {ALL_REDUCE: 1}


def test_ranges_go_on_after_an_operation_that_is_refused(world: StandIn) -> None:
    rows = list[Row]()
    with profiled(rows):
        with pytest.raises(BadTensor):
            world.sessions[0].world.all_gather(torch.ones(4), torch.ones(4).double())
        works = [each.all_reduce(torch.ones(3), "max") for each in world.sessions]
        for work in works:
            work.wait()
    assert names(rows) == {ALL_REDUCE: 2, SUBMIT: 2, WAIT: 2, f"{PREFIX}all_gather": 1}


def test_a_wait_that_fails_shows_itself_and_ends(world: StandIn) -> None:
    world.answering = False
    rows = list[Row]()
    work, _ = [each.all_reduce(torch.ones(3)) for each in world.sessions]
    world.fail(1, "peer_lost", "rank 1 is gone")
    with profiled(rows):
        with pytest.raises(PeerLost):
            work.wait()
        torch.ones(1)
    [(name, facts)] = rows
    assert name == WAIT and facts["operation"] == work.number == 1
    assert facts["of"] == "all_reduce of 3 float32"
