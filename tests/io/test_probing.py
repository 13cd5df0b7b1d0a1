"""Rounds of a probe in engines: rates, and what ends a round without one."""

from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd.contract.messages import Completed
from dlcpd.io.commands import NO_PEER, PROBE_MESSAGES, ProbeFlows
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import FlowsProbed, OperationsFailed
from tests.io.engines import FORKED, Job

SIZE = PROBE_MESSAGES * 100_000
COUNT = 8


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    paths = (("127.0.0.1", 0),)
    started = Job(3, lambda rank: EngineConfig(host=f"host{rank}", paths=paths), FORKED)
    yield started
    started.close()


def ask(
    job: Job, rank: int, serial: int, target: int, source: int, *, deadline: float = 10.0
) -> None:
    command = ProbeFlows(1, serial, target, SIZE, source, SIZE, deadline, idle=True)
    job.engines[rank].send(command)


def answer(job: Job, rank: int) -> FlowsProbed:
    while True:
        event = job.engines[rank].receive()
        if not isinstance(event, OperationsFailed):
            assert isinstance(event, FlowsProbed), event
            return event


def all_reduce(job: Job, number: int) -> None:
    parts = [np.full(COUNT, 1.0, np.float32) for _ in job.ranks]
    outcomes = job.all_reduce(number, parts)
    assert all(isinstance(one, Completed) for one in outcomes), outcomes


def test_a_round_says_how_fast_bytes_arrived(job: Job) -> None:
    """Rank 2 only receives, rank 0 only sends; no client gets a message of it."""
    all_reduce(job, 1)
    for serial in (1, 2):
        ask(job, 0, serial, 1, NO_PEER)
        ask(job, 1, serial, 2, 0)
        ask(job, 2, serial, NO_PEER, 1)
        found = [answer(job, rank) for rank in range(3)]
        assert [(one.serial, one.why) for one in found] == [(serial, "")] * 3
        assert found[0].bps == 0 and all(one.bps > 10**6 for one in found[1:])
    all_reduce(job, 2)


def test_a_round_of_a_busy_job_is_refused(job: Job) -> None:
    job.ranks[0].submit(3, count=COUNT)  # which waits for the others
    job.engines[0].report()
    ask(job, 0, 3, 1, NO_PEER)
    assert answer(job, 0) == FlowsProbed(1, 3, 0, "1 operations of the job are open")
    for rank in (1, 2):
        job.ranks[rank].submit(3, count=COUNT)
    assert [type(rank.outcome(3)) for rank in job.ranks] == [Completed] * 3


def test_a_job_that_begins_operations_meanwhile_is_noticed(job: Job) -> None:
    ask(job, 0, 4, 1, NO_PEER)  # rank 1 does not receive yet
    all_reduce(job, 4)
    ask(job, 1, 4, NO_PEER, 0)
    found = [answer(job, rank) for rank in (0, 1)]
    assert [one.why for one in found] == ["the job began operations meanwhile", ""]


def test_a_round_whose_peer_does_not_take_part_ends_by_its_deadline(job: Job) -> None:
    """And the next one of the same pair is not disturbed by it."""
    ask(job, 0, 5, 1, 2, deadline=0.2)
    failed = answer(job, 0)
    assert failed.bps == 0 and "missed its deadline" in failed.why
    for rank in range(3):
        ask(job, rank, 6, (rank + 1) % 3, (rank + 2) % 3)
    assert [answer(job, rank).why for rank in range(3)] == [""] * 3
    all_reduce(job, 5)


def test_a_session_that_is_over_gets_no_answer(job: Job) -> None:
    job.engines[0].send(ProbeFlows(9, 1, 1, SIZE, NO_PEER, 0, 1.0, idle=True))
    job.engines[0].report()
