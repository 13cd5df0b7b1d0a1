"""Who reads the lane, what ends a wait, and what an interrupt leaves behind."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from dlcp_client import exact
from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations import submission
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import (
    DaemonLost,
    DeadlineExceeded,
    DlcpError,
    Peer,
    PeerLost,
    SessionClosed,
)
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Failed, Message, Refused
from tests.client.stand_in import StandIn, completed, until_polling, until_released, wait_until

NOW = exact(deadline=0.01)


def submit(world: StandIn, value: float = 1.0) -> Work:
    """One operation of both ranks; rank 0's work."""
    works = [s.all_reduce(torch.full((4,), value), policy=exact()) for s in world.sessions]
    return works[0]


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A thread that runs `call`, and the list its outcome will be in."""
    out: list[object] = []

    def run() -> None:
        try:
            out.append(call())
        except DlcpError as exc:
            out.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def test_waiting_needs_no_thread(world: StandIn) -> None:
    before = threading.active_count()
    assert submit(world).wait()
    assert threading.active_count() == before


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_waiting_threads_all_get_their_outcome(world: StandIn, order: list[int]) -> None:
    """One leads, the others follow, and leadership passes on, whoever is answered first."""
    world.answering = False
    works = [submit(world, float(i)) for i in range(3)]
    threads = [in_background(work.wait) for work in works]
    for number in order:
        world.answer(number)
        threads[number - 1][0].join(30)
        assert threads[number - 1][1] == [True]
    assert [int(work.tensor[0]) for work in works] == [0, 2, 4]


def test_one_work_may_have_many_waiters(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    threads = [in_background(work.wait) for _ in range(4)]
    world.answer(1)
    for thread, out in threads:
        thread.join(30)
        assert out == [True]


def test_a_timeout_leaves_the_operation_going(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    with pytest.raises(TimeoutError, match="it goes on"):
        work.wait(timeout=0.01)
    assert not work.done()
    world.answer(1)
    assert work.wait(timeout=30)
    assert work.tensor.tolist() == [2.0] * 4


def test_done_takes_the_outcome_in_without_waiting(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    assert not work.done()
    world.answer(1)
    while not work.done():
        time.sleep(0)
    assert work.tensor.tolist() == [2.0] * 4


def test_who_waits_after_the_deadline_still_gets_the_answer(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MARGIN", 0.0)
    works = [s.all_reduce(torch.ones(4), policy=exact(deadline=1e-6)) for s in world.sessions]
    world.wait_for(1)
    for work in works:
        assert work.expires < time.monotonic()
        assert work.wait()


def test_a_silent_engine_does_not_hang_a_wait(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MARGIN", 0.0)
    world.answering = False
    work = world.sessions[0].all_reduce(torch.ones(4), policy=NOW)
    with pytest.raises(DeadlineExceeded, match=r"operation 1 .*engine is stopped"):
        work.wait()


def test_memory_of_an_unanswered_operation_stays_held(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped engine that goes on may still write there."""
    monkeypatch.setattr(submission, "MARGIN", 0.0)
    world.answering = False
    work = world.sessions[0].all_reduce(torch.ones(4), policy=NOW)
    with pytest.raises(DeadlineExceeded):
        work.wait()
    assert world.sessions[0]._connection.arena.used > 0  # noqa: SLF001
    world.far[0].send(completed(1))
    session = world.sessions[0]
    until_released(session)
    assert session._connection.arena.used == 0  # noqa: SLF001
    with pytest.raises(DeadlineExceeded):
        work.wait()  # the first outcome counts


def test_an_engine_that_does_not_read_does_not_hang_a_submission(world: StandIn) -> None:
    world.reading.clear()
    session = world.sessions[0]
    tensor = session.empty(1)

    def until_full() -> None:
        for _ in range(10_000):
            session.all_reduce(tensor, policy=NOW)

    with pytest.raises(DeadlineExceeded, match="takes no further operation"):
        until_full()
    sent = session._connection.table.waiting  # noqa: SLF001
    over, limit = threading.Event(), time.monotonic() + 60
    # The stand-in, unlike the engine, blocks when a rank leaves its answers unread.
    readers = [in_background(partial(wait_until, s, over.is_set, limit)) for s in world.sessions]
    world.reading.set()
    for _ in range(sent):
        world.sessions[1].all_reduce(torch.ones(1))
    assert submit(world).wait()  # nothing of the refused one was sent: the numbers still agree
    over.set()
    for thread, _ in readers:
        thread.join(30)


def test_the_end_of_the_lane_ends_every_wait(world: StandIn) -> None:
    world.answering = False
    threads = [in_background(submit(world).wait) for _ in range(3)]
    world.far[0].close()
    for thread, out in threads:
        thread.join(30)
        assert isinstance(out[0], DaemonLost)
        assert "the stand-in was told to end" in str(out[0])
        assert "checkpoint" in str(out[0])
    with pytest.raises(DaemonLost, match="told to end"):
        world.sessions[0].all_reduce(torch.ones(1))


def test_the_end_of_the_session_socket_ends_a_wait(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    world.far[0].control.shutdown(1)  # the far end's writing half: control is gone, the lane is not
    with pytest.raises(DaemonLost):
        work.wait()


def test_the_daemons_last_words_are_the_error(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    world.far[0].control.send(encode(Refused("peer_lost", "rank 1 on b left")))
    world.far[0].close()
    with pytest.raises(PeerLost, match="rank 1 on b left"):
        work.wait()


def test_the_engines_last_words_come_before_the_end(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    world.wait_for(1)
    facts = Peer(1, "b", "10.0.0.2:4040", "rank(s) 1 to submit operation 1")
    world.far[0].send(Failed(0, "peer_lost", "rank 1 on b is silent", *facts))
    world.far[0].close()
    for ask in (work.wait, lambda: world.sessions[0].all_reduce(torch.ones(1))):
        with pytest.raises(PeerLost, match="rank 1 on b is silent") as caught:
            ask()
        assert caught.value.peer == facts


def test_a_submission_after_the_end_says_why(world: StandIn) -> None:
    world.far[0].send(Failed(0, "peer_lost", "rank 1 on b is silent"))
    world.far[0].close()
    with pytest.raises(PeerLost, match="rank 1 on b is silent"):
        world.sessions[0].all_reduce(torch.ones(1))


def test_a_frame_that_finds_the_lane_ended_reads_the_last_words_first(world: StandIn) -> None:
    """The end may come between a look at the lane and the frame's departure."""
    world.far[0].send(Failed(0, "peer_lost", "rank 1 on b is silent"))
    world.far[0].close()
    with pytest.raises(PeerLost, match="rank 1 on b is silent"):
        world.sessions[0]._connection.lanes.send(b"frame", time.monotonic() + 30)  # noqa: SLF001


def test_a_session_that_ends_before_the_number_is_given_gives_none(world: StandIn) -> None:
    """The end may come while the tensor is copied."""
    session = world.sessions[0]
    connection, region = session._connection, session.empty(1)  # noqa: SLF001
    table = connection.table
    table.fail(PeerLost("rank 1 on b is silent"))
    with pytest.raises(PeerLost):
        table.begin(Work.over(connection.outcomes, TENSORS.block(region)), (region,))
    assert (table.waiting, len(table.memory)) == (0, 0)


def test_the_first_reason_counts(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    world.wait_for(1)
    world.fail(0, "peer_lost", "rank 1 on b is silent")
    world.fail(0, "daemon_lost", "something later")
    with pytest.raises(PeerLost):
        work.wait()
    world.sessions[0].close()
    with pytest.raises(PeerLost, match="rank 1 on b is silent"):
        world.sessions[0].all_reduce(torch.ones(1))


def interrupt_when_polling(after: Callable[[], None]) -> threading.Thread:
    """Send this thread a Ctrl-C once it reads the lane."""
    me = threading.get_ident()

    def run() -> None:
        until_polling(me)
        signal.pthread_kill(me, signal.SIGINT)
        after()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_wait_can_be_waited_for_again(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    other = submit(world, 5.0)
    thread = interrupt_when_polling(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    thread.join()
    follower, out = in_background(other.wait)  # leadership is free again
    world.answer(2)
    follower.join(30)
    assert out == [True]
    world.answer(1)
    assert work.wait()
    assert work.tensor.tolist() == [2.0] * 4


def test_an_interrupt_between_reading_and_handing_over_loses_nothing(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = submit(world)
    table = world.sessions[0]._connection.table  # noqa: SLF001
    original, calls = table.handle_locked, []

    def interrupted(message: Message, engine: int) -> None:
        calls.append(message)
        if len(calls) == 1:
            raise KeyboardInterrupt
        original(message, engine)

    monkeypatch.setattr(table, "handle_locked", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert work.wait()
    assert calls[0] == calls[1]
    assert table.ledgers.whole.operations == 1


def test_an_interrupted_submission_ends_the_session(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the frame left is unknown, so the ranks' numbers may differ."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    session = world.sessions[0]
    monkeypatch.setattr(session._connection.lanes, "send", interrupted)  # noqa: SLF001
    with pytest.raises(KeyboardInterrupt):
        session.all_reduce(torch.ones(1))
    with pytest.raises(SessionClosed, match="operation 1 was interrupted"):
        session.all_reduce(torch.ones(1))


def test_many_threads_many_operations(world: StandIn) -> None:
    """Submissions of one thread keep their order; waits are spread over threads."""
    for _ in range(20):
        works = [submit(world, float(i)) for i in range(8)]
        threads = [in_background(work.wait) for work in works]
        for thread, out in threads:
            thread.join(30)
            assert out == [True]
        assert [int(work.tensor[0]) for work in works] == [2 * i for i in range(8)]
    assert world.sessions[0].ledger.operations == 160


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # fork with threads: the point
def test_a_forked_child_neither_uses_nor_ends_its_parents_session(world: StandIn) -> None:
    world.answering = False
    work = submit(world)
    kept = world.sessions[0].empty(4).fill_(3)
    child = os.fork()
    if child == 0:
        os._exit(_as_a_child(world, work, kept))  # no clean-up of the parent's things
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    world.answer(1)
    assert work.wait()
    world.answering = True
    assert submit(world).wait()


def _as_a_child(world: StandIn, work: Work, kept: torch.Tensor) -> int:
    """0 when all is as it should be."""
    session = world.sessions[0]
    calls: list[Callable[[], object]] = [
        work.wait,
        lambda: session.all_reduce(torch.ones(1)),
        lambda: session.empty(1),
    ]
    for number, call in enumerate(calls, 1):
        try:
            call()
            return number
        except SessionClosed as exc:
            if "parent" not in str(exc):
                return 10 + number
    if bool((kept != 3).any()):
        return 20
    session.close()
    return 0
