"""An engine while another network is settled: what it promises, and the operation that waits."""

from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd.contract.messages import Completed, Failed
from dlcpd.io import commands
from dlcpd.io.commands import Begun
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import NetworkPromised
from dlcpd.requests.networks import REST, WINDOW
from dlcpd.schedules.network import HostCapacity
from tests.io.engines import FORKED, Job

NETWORK = [("host0", HostCapacity((10**9,), (10**9,))), ("host1", HostCapacity((10**8,), (10**8,)))]
COUNT = 8


@pytest.fixture
def job() -> Iterator[Job]:
    paths = (("127.0.0.1", 0),)
    started = Job(2, lambda rank: EngineConfig(host=f"host{rank}", paths=paths), FORKED)
    yield started
    started.close()


def exact(job: Job, number: int) -> None:
    parts = [np.full(COUNT, rank + 1.0, np.float32) for rank in range(2)]
    outcomes = job.all_reduce(number, parts)
    assert all(isinstance(one, Completed) for one in outcomes), outcomes
    assert all(rank.tensor(0, COUNT).tolist() == [3.0] * COUNT for rank in job.ranks)


def offered(job: Job, engine: int, version: int = 2) -> NetworkPromised:
    job.engines[engine].send(commands.OfferNetwork(1, version, NETWORK))
    event = job.engines[engine].receive()
    assert isinstance(event, NetworkPromised)
    return event


def settle(job: Job, engine: int, first: int, rest: int = REST, version: int = 2) -> None:
    firsts = [Begun(0, first)]
    job.engines[engine].send(commands.SettleNetwork(1, version, firsts, rest))
    job.engines[engine].report()  # it is done


def open_operations(job: Job, engine: int) -> tuple[int, int]:
    row = job.engines[engine].report()["sessions"]["1"]
    return row["submitted"], row["open"]


def test_it_promises_operations_up_to_a_limit_and_holds_the_next(job: Job) -> None:
    exact(job, 1)
    assert offered(job, 0) == NetworkPromised(1, 2, [Begun(0, 1 + WINDOW)])
    limit = 1 + WINDOW
    for number in range(2, limit + 1):
        exact(job, number)
    for rank in job.ranks:
        rank.submit(limit + 1, count=COUNT)
    assert (open_operations(job, 0)[0], open_operations(job, 1)[0]) == (limit, limit + 1)
    settle(job, 0, limit + 1, rest=0)
    assert [type(rank.outcome(limit + 1)) for rank in job.ranks] == [Completed] * 2
    exact(job, limit + 2)  # and the lane is read again


def test_both_ranks_go_over_to_the_new_network(job: Job) -> None:
    exact(job, 1)
    for engine in (0, 1):
        offered(job, engine)
    for engine in (0, 1):
        settle(job, engine, 2 + WINDOW)
    for number in range(2, 5 + WINDOW):
        exact(job, number)
    assert "bad_network" not in job.engines[0].counters()


def test_ranks_with_different_networks_disagree(job: Job) -> None:
    """A forged or lost message ends an operation, and never gives a wrong sum."""
    exact(job, 1)
    offered(job, 0)
    settle(job, 0, 2 + WINDOW)
    for number in range(2, 2 + WINDOW):
        exact(job, number)
    for rank in job.ranks:
        rank.submit(2 + WINDOW, count=COUNT)
    failed = [rank.outcome(2 + WINDOW) for rank in job.ranks]
    assert {one.code for one in failed if isinstance(one, Failed)} <= {
        "ranks_disagree",
        "operation_aborted",
    }
    assert "ranks_disagree" in {one.code for one in failed if isinstance(one, Failed)}


def test_first_operations_below_the_promise_are_counted_and_ignored(job: Job) -> None:
    exact(job, 1)
    offered(job, 0)
    settle(job, 0, 1 + WINDOW)
    for number in range(2, 4 + WINDOW):
        exact(job, number)
    assert job.engines[0].counters()["bad_network"] == 1


def test_an_operation_that_waits_fails_at_its_deadline_and_the_next_is_read(job: Job) -> None:
    offered(job, 0)
    for number in range(1, WINDOW + 1):
        exact(job, number)
    held = WINDOW + 1
    job.ranks[0].submit(held, count=COUNT, deadline=0.05)
    failed = job.ranks[0].outcome(held)
    assert isinstance(failed, Failed) and failed.code == "deadline_exceeded"
    assert "waited for a new plan" in failed.text
    job.ranks[0].submit(held + 1, count=COUNT)  # it is held too
    assert open_operations(job, 0) == (held, 0)
    settle(job, 0, held, rest=0)
    assert open_operations(job, 0) == (held + 1, 1)


def test_a_client_that_leaves_takes_its_waiting_operation_with_it(job: Job) -> None:
    offered(job, 0)
    for number in range(1, WINDOW + 1):
        exact(job, number)
    for rank in job.ranks:
        rank.submit(WINDOW + 1, count=COUNT)
    assert open_operations(job, 0)[0] == WINDOW
    job.engines[0].send(commands.LeaveSession(1, "session_closed", "the client ended"))
    job.engines[0].receive()  # SessionLeft
    assert open_operations(job, 0)[0] == WINDOW + 1  # it has failed, and the peer counts it
    settle(job, 0, WINDOW + 1, rest=0)  # no operation waits any more


def test_an_offer_to_a_session_that_is_over_is_no_error(job: Job) -> None:
    job.engines[0].send(commands.OfferNetwork(9, 2, NETWORK))
    job.engines[0].send(commands.SettleNetwork(9, 2, [], REST))
    exact(job, 1)
