"""Futures: on which threads they complete, and how they fail."""

import threading

import pytest
import torch
from torch.futures import Future

from dlcp_client import exact
from dlcp_client.operations import submission
from dlcp_client.operations.work import Work
from tests.client.stand_in import StandIn

# torch waits for a Future in C++, where no signal is looked at: only a thread can end a hang.
pytestmark = pytest.mark.timeout(60, method="thread")

Result = list[torch.Tensor]


def submit(world: StandIn, value: float = 1.0) -> list[Work]:
    return [session.all_reduce(torch.full((4,), value)) for session in world.sessions]


def on_thread(done: "Future[Result]") -> str:
    done.value()
    return threading.current_thread().name


def test_a_future_holds_the_tensor(world: StandIn) -> None:
    works = submit(world)
    for work in works:
        [tensor] = work.get_future().wait()
        assert tensor is work.tensor
        assert tensor.tolist() == [2.0] * 4


def test_asking_twice_gives_the_same_future(world: StandIn) -> None:
    [work, _] = submit(world)
    assert work.get_future() is work.get_future()
    work.get_future().wait()


def test_a_future_asked_for_after_the_end_completes(world: StandIn) -> None:
    [work, _] = submit(world)
    assert work.wait()
    assert work.get_future().wait()[0].tolist() == [2.0] * 4


def test_callbacks_run_on_a_thread_that_does_not_read(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world)
    name = work.get_future().then(on_thread)
    world.answer(1)
    assert name.wait() == "dlcp-callbacks"


def test_a_callback_may_wait_for_other_operations(world: StandIn) -> None:
    """PowerSGD does; on the thread that reads, it would wait for itself."""
    world.answering = False
    first, second, third = (submit(world, float(i)) for i in range(3))

    def nested(_: "Future[Result]") -> float:
        world.answer(2)
        second[0].wait()
        world.answer(3)
        return float(third[0].get_future().wait()[0][0])

    chained = first[0].get_future().then(nested)
    world.answer(1)
    assert chained.wait() == 4.0


def test_waiting_and_futures_mix(world: StandIn) -> None:
    world.answering = False
    works = [submit(world, float(i))[0] for i in range(6)]
    futures = [work.get_future() for work in works[::2]]
    for number in (6, 1, 5, 2, 4, 3):
        world.answer(number)
    for work in works[1::2]:
        work.wait()
    assert [int(future.wait()[0][0]) for future in futures] == [0, 4, 8]
    assert [int(work.tensor[0]) for work in works] == [0, 2, 4, 6, 8, 10]


def test_a_failure_raises_its_text_in_a_chain(world: StandIn) -> None:
    """Not set_exception: DDP crashes on that."""
    world.answering = False
    [work, _] = submit(world)
    chained = work.get_future().then(lambda done: done.value()[0])
    world.wait_for(1)
    world.fail(1, "peer_lost", "rank 1 on b is silent")
    with pytest.raises(RuntimeError, match="rank 1 on b is silent"):
        chained.wait()


def test_the_end_of_the_daemon_fails_a_future(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world)
    future = work.get_future()
    world.far[0].close()
    with pytest.raises(RuntimeError, match="DaemonLost"):
        future.wait()


def test_a_silent_engine_does_not_hang_a_future(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MARGIN", 0.0)
    world.answering = False
    work = world.sessions[0].all_reduce(torch.ones(4), policy=exact(deadline=0.01))
    with pytest.raises(RuntimeError, match="engine is stopped"):
        work.get_future().wait()


def test_close_fails_futures_and_ends_the_threads(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world)
    future = work.get_future()
    session = world.sessions[0]
    session.close()
    with pytest.raises(RuntimeError, match="session is closed"):
        future.wait()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"dlcp-reader", "dlcp-callbacks"}


def test_a_reader_exists_only_once_a_future_was_asked_for(world: StandIn) -> None:
    [work, _] = submit(world)
    work.wait()
    assert "dlcp-reader" not in {thread.name for thread in threading.enumerate()}
    [work, _] = submit(world)
    work.get_future().wait()
    assert "dlcp-callbacks" in {thread.name for thread in threading.enumerate()}
