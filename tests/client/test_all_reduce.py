"""Submitting: values, memory, order, and errors that come back over the lane."""

import gc
import select
import socket
import threading
import time
from typing import Any

import pytest
import torch

from dlcp_client.arena.memory import OFFSET_UNIT
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import (
    ArenaFull,
    BadMessage,
    BadPolicy,
    BadTensor,
    DlcpError,
    PeerLost,
    ReplicaDivergence,
    SessionClosed,
    error_for,
)
from dlcpd.contract.messages import DTYPES, Failed, Hello, Left
from dlcpd.contract.policy import bounded, exact
from tests.client.stand_in import (
    ARENA,
    StandIn,
    completed,
    until_polling,
    until_released,
    wait_until,
)


def submit(world: StandIn, tensors: list[torch.Tensor], *args: Any, **more: Any) -> list[Work]:
    return [s.all_reduce(t, *args, **more) for s, t in zip(world.sessions, tensors, strict=True)]


WANTED = {"sum": [5, 1], "min": [1, -2], "max": [4, 3]}
UNSIGNED = {"sum": [5, 5], "min": [1, 2], "max": [4, 3]}
OF_BOOL = {"sum": [1, 0], "min": [0, 0], "max": [1, 0]}  # a sum is an or


KINDS = [  # complex numbers have no order
    (dtype, op) for dtype in DTYPES for op in WANTED if op == "sum" or "complex" not in dtype
]


@pytest.mark.parametrize(("dtype", "op"), KINDS)
def test_ordinary_tensors_hold_the_result(world: StandIn, dtype: str, op: str) -> None:
    kind = getattr(torch, dtype)
    parts, wanted = ([1, 3], [4, -2]), WANTED
    if kind == torch.uint8:
        parts, wanted = ([1, 3], [4, 2]), UNSIGNED
    if kind == torch.bool:
        parts, wanted = ([1, 0], [0, 0]), OF_BOOL
    tensors = [torch.tensor(part, dtype=kind) for part in parts]
    works = submit(world, tensors, op)
    assert all(work.wait() for work in works)
    assert all(torch.equal(t, torch.tensor(wanted[op], dtype=kind)) for t in tensors)


def test_any_shape_is_taken(world: StandIn) -> None:
    for shape in ((), (1,), (2, 3, 4), (7, 1)):
        tensors = [torch.full(shape, rank + 1.0) for rank in range(2)]
        for work in submit(world, tensors, "avg"):
            work.wait()
        assert all(torch.equal(t, torch.full(shape, 1.5)) for t in tensors)


def test_a_tensor_that_requires_grad_is_taken(world: StandIn) -> None:
    tensors: list[torch.Tensor] = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for work in submit(world, tensors):
        work.wait()
    assert bool((tensors[0] == 2).all())


def test_ordinary_tensors_are_staged_and_their_room_is_given_back(world: StandIn) -> None:
    works = submit(world, [torch.ones(5), torch.ones(5)])
    for work in works:
        work.wait()
    assert not world.far[0].submits[1].in_place
    session = world.sessions[0]
    until_released(session)
    assert session._connection.arena.used == 0  # noqa: SLF001


def test_arena_tensors_are_used_where_they_are(world: StandIn) -> None:
    tensors = [session.empty((8, 16)).fill_(rank) for rank, session in enumerate(world.sessions)]
    before = tensors[0].data_ptr()
    for work in submit(world, tensors):
        work.wait()
    assert world.far[0].submits[1].in_place
    assert tensors[0].data_ptr() == before
    assert bool((tensors[0] == 1).all())
    assert world.far[0].tensor(1).sum() == tensors[0].sum()


def test_the_engine_learns_when_it_was_submitted(world: StandIn) -> None:
    begin = time.monotonic()
    works = submit(world, [torch.ones(4), torch.ones(4)])
    end = time.monotonic()
    for work in works:
        work.wait()
    assert begin <= world.far[0].submits[1].submitted <= end


def test_a_slice_of_an_arena_tensor_is_used_where_it_is(world: StandIn) -> None:
    wholes = [session.empty((64,)).fill_(1) for session in world.sessions]
    for work in submit(world, [whole[16:32] for whole in wholes]):
        work.wait()
    sent = world.far[0].submits[1]
    assert (sent.in_place, sent.input, sent.input_count) == (True, OFFSET_UNIT, 16)
    assert wholes[0].tolist() == [1.0] * 16 + [2.0] * 16 + [1.0] * 32


def test_a_slice_that_the_engine_cannot_take_is_copied(world: StandIn) -> None:
    wholes = [session.empty((64,)).fill_(1) for session in world.sessions]
    for work in submit(world, [whole[1:3] for whole in wholes]):
        work.wait()
    assert not world.far[0].submits[1].in_place
    assert wholes[0][:4].tolist() == [1.0, 2.0, 2.0, 1.0]


def test_a_result_that_is_only_read_need_not_be_released(world: StandIn) -> None:
    tensors = [session.empty(4).fill_(1) for session in world.sessions]
    for work in submit(world, tensors, result_only=True):
        work.wait()
    assert not world.far[0].submits[1].in_place
    assert bool((tensors[0] == 2).all())


def test_operations_are_numbered_in_the_order_of_submission(world: StandIn) -> None:
    works = [submit(world, [torch.tensor([i]), torch.tensor([i])]) for i in range(5)]
    for pair in works:
        for work in pair:
            work.wait()
    assert list(world.far[0].submits) == [1, 2, 3, 4, 5]
    assert [int(pair[0].tensor) for pair in works] == [0, 2, 4, 6, 8]


def test_an_empty_tensor_is_done_at_once_and_has_no_number(world: StandIn) -> None:
    [work, _] = submit(world, [torch.empty(0), torch.empty(0)])
    assert work.done()
    assert work.wait()
    assert work.get_future().wait()[0].numel() == 0
    for full in submit(world, [torch.ones(1), torch.ones(1)]):
        full.wait()
    assert list(world.far[0].submits) == [1]


def test_what_is_refused_here_has_no_number(world: StandIn) -> None:
    session = world.sessions[0]
    with pytest.raises(BadTensor):
        session.all_reduce(torch.zeros(3, dtype=torch.uint16))
    with pytest.raises(BadPolicy):
        session.all_reduce(torch.zeros(3), policy=bounded())
    for work in submit(world, [torch.ones(1), torch.ones(1)]):
        work.wait()
    assert list(world.far[0].submits) == [1]


def test_the_ledger_adds_up(world: StandIn) -> None:
    world.answering = False
    works = submit(world, [torch.ones(1), torch.ones(1)])
    more = submit(world, [torch.ones(1), torch.ones(1)])
    world.wait_for(2)
    counts = {"sent": 10, "retransmitted": 2, "waived": 1, "reapplied": 3, "lost": 4}
    for number in (1, 2):
        for far in world.far:
            far.send(completed(number, **counts))
    for work in works + more:
        work.wait()
    assert works[0].stats == completed(1, **counts)
    ledger = world.sessions[0].ledger
    assert (ledger.operations, ledger.sent, ledger.retransmitted) == (2, 20, 4)
    assert (ledger.waived, ledger.reapplied, ledger.lost) == (2, 6, 8)


CODES = ["ranks_disagree", "peer_lost", "deadline_exceeded", "operation_aborted", "no_such_code"]


@pytest.mark.parametrize("code", CODES)
def test_a_failed_operation_raises_its_error(world: StandIn, code: str) -> None:
    world.answering = False
    works = submit(world, [torch.ones(3), torch.ones(3)])
    world.wait_for(1)
    world.fail(1, code, "rank 1 on b: because")
    raised: list[DlcpError] = []
    for work in works:
        for _ in range(2):
            with pytest.raises(type(error_for(code, "")), match="rank 1 on b: because") as caught:
                work.wait()
            assert type(caught.value) is type(error_for(code, ""))
            raised.append(caught.value)
        assert work.done()
        assert work.stats is None
    assert len({id(error) for error in raised}) == 4  # each time anew, with its own traceback
    assert works[0].tensor.tolist() == [1, 1, 1]  # as it was
    world.answering = True
    for work in submit(world, [torch.ones(1), torch.ones(1)]):
        work.wait()  # the session goes on


def test_a_failed_operation_gives_its_memory_back(world: StandIn) -> None:
    world.answering = False
    works = submit(world, [torch.ones(3), torch.ones(3)])
    world.wait_for(1)
    world.fail(1, "operation_aborted", "because")
    with pytest.raises(DlcpError):
        works[0].wait()
    gc.collect()
    assert world.sessions[0]._connection.arena.used == 0  # noqa: SLF001


def test_a_failed_session_raises_everywhere(world: StandIn) -> None:
    world.answering = False
    works = [*submit(world, [torch.ones(3)] * 2), *submit(world, [torch.ones(3)] * 2)]
    world.wait_for(2)
    world.fail(0, "peer_lost", "rank 1 on b is silent")
    for work in works:
        with pytest.raises(PeerLost, match="rank 1 on b is silent"):
            work.wait()
    with pytest.raises(PeerLost, match="rank 1 on b is silent"):
        world.sessions[0].all_reduce(torch.ones(1))
    with pytest.raises(PeerLost, match="rank 1 on b is silent"):
        world.sessions[0].empty(1)


def test_a_frame_that_does_not_belong_ends_the_session(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world, [torch.ones(3)] * 2)
    world.far[0].send(Hello(1, "x"))
    with pytest.raises(BadMessage, match="Hello on the lane"):
        work.wait()


def test_bytes_that_are_no_frame_end_the_session(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world, [torch.ones(3)] * 2)
    world.far[0].lane.send(b"\xc1")
    with pytest.raises(BadMessage, match="bad frame"):
        work.wait()


def test_frames_for_unknown_operations_change_nothing(world: StandIn) -> None:
    world.answering = False
    works = submit(world, [torch.ones(1), torch.ones(1)])
    world.far[0].send(completed(99))
    world.release(98)
    world.fail(97, "peer_lost", "because")
    world.answer(1)
    for work in works:
        work.wait()
    assert world.sessions[0].ledger.operations == 1


def test_memory_is_used_again_only_after_its_release(world: StandIn) -> None:
    world.releasing = False
    session = world.sessions[0]
    for work in submit(world, [torch.ones(3), torch.ones(3)]):
        work.wait()
    gc.collect()
    assert session._connection.arena.used > 0  # noqa: SLF001
    world.release(1)
    until_released(session)
    assert session._connection.arena.used == 0  # noqa: SLF001


def test_an_arena_tensor_dropped_in_flight_keeps_its_memory(world: StandIn) -> None:
    world.answering = False
    works = submit(world, [session.empty(4).fill_(1) for session in world.sessions])
    del works
    gc.collect()
    assert world.sessions[0]._connection.arena.used > 0  # noqa: SLF001
    world.answer(1)
    session = world.sessions[0]
    until_released(session)
    gc.collect()
    assert session._connection.arena.used == 0  # noqa: SLF001


HALF = ARENA // 8 + 1  # float32 elements that take more than half of the arena


def test_without_room_a_submission_waits_for_operations_in_flight(world: StandIn) -> None:
    world.releasing = False
    first = submit(world, [torch.ones(HALF), torch.ones(HALF)])
    for work in first:
        work.wait()
    releaser = threading.Thread(target=world.release, args=(1,))
    releaser.start()
    for work in submit(world, [torch.ones(HALF), torch.ones(HALF)]):
        assert work.wait()
    releaser.join()


def test_results_that_nobody_fetched_make_room(world: StandIn) -> None:
    """Ten asynchronous submissions in an arena that holds one."""
    tensors = [[torch.full((HALF,), float(i)) for _ in range(2)] for i in range(10)]
    threads = []
    results: list[list[Work]] = [[], []]

    def run(rank: int) -> None:
        for pair in tensors:
            results[rank].append(world.sessions[rank].all_reduce(pair[rank]))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for works in results:
        for i, work in enumerate(works):
            work.wait()
            assert work.tensor[-1] == 2 * i


def test_an_arena_that_stays_full_is_an_error(world: StandIn) -> None:
    world.answering = False
    submit(world, [torch.ones(HALF), torch.ones(HALF)])
    with pytest.raises(ArenaFull, match="larger arena_bytes"):
        world.sessions[0].all_reduce(torch.ones(HALF), policy=exact(deadline=0.05))


def test_a_tensor_larger_than_the_arena_does_not_wait(world: StandIn) -> None:
    with pytest.raises(ArenaFull, match="larger arena_bytes"):
        world.sessions[0].all_reduce(torch.ones(ARENA))


def test_full_of_arena_tensors_does_not_wait(world: StandIn) -> None:
    kept = world.sessions[0].empty(HALF)
    with pytest.raises(ArenaFull):
        world.sessions[0].all_reduce(torch.ones(HALF))
    with pytest.raises(ArenaFull):
        world.sessions[0].empty(HALF)
    del kept


def test_a_closed_session_takes_nothing(world: StandIn) -> None:
    with world.sessions[0] as session:
        tensor = session.empty(4).fill_(3)
    session.close()  # twice is fine
    with pytest.raises(SessionClosed):
        session.all_reduce(torch.ones(1))
    assert tensor.sum() == 12  # what was made lives on


def test_close_fails_what_is_open(world: StandIn) -> None:
    world.answering = False
    [work, _] = submit(world, [torch.ones(1), torch.ones(1)])
    world.sessions[0].close()
    with pytest.raises(SessionClosed):
        work.wait()


def test_close_stays_until_peers_have_what_is_done(world: StandIn) -> None:
    """The far end releases only once it saw that close() waits: the control is still open then."""
    world.releasing = False
    for work in submit(world, [torch.ones(1), torch.ones(1)]):
        work.wait()
    session = world.sessions[0]
    seen: list[list[socket.socket]] = []

    def release_when_it_waits() -> None:
        until_polling(closer.ident or 0)
        seen.append(select.select([world.far[0].control], [], [], 0)[0])
        world.release(1)

    closer = threading.Thread(target=session.close)
    closer.start()
    release_when_it_waits()
    closer.join()
    assert seen == [[]]  # nobody had left
    assert len(session._connection.table.memory) == 0  # noqa: SLF001


def test_close_does_not_stay_for_operations_without_an_outcome(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that crashed must be named by its peers soon."""
    monkeypatch.setattr("dlcp_client.connection.DRAIN_TIMEOUT", float("inf"))
    world.answering = False
    submit(world, [torch.ones(1), torch.ones(1)])
    world.sessions[0].close()  # a wait would have no end


def test_close_says_that_the_last_results_differ(world: StandIn) -> None:
    world.verdict = Failed(0, "replica_divergence", "rank 1 on host1 and rank 0 here")
    session = world.sessions[0]
    with pytest.raises(ReplicaDivergence, match="rank 1 on host1"):
        session.close()
    session.close()  # it is closed all the same
    with pytest.raises(ReplicaDivergence):
        session.all_reduce(torch.ones(1))


def test_close_says_what_could_not_be_compared(
    world: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    world.verdict = Left(3)
    world.sessions[0].close()
    assert "3 results" in caplog.text


def test_an_engine_that_does_not_compare_is_not_waited_for_long(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcp_client.connection.COMPARE_TIMEOUT", 0.01)
    monkeypatch.setattr("dlcp_client.connection.LATE", 0.01)
    monkeypatch.setattr("dlcp_client.operations.lanes.LEAVE_TIMEOUT", 0.01)
    world.reading.clear()
    world.sessions[0].close()


def test_leaving_is_told_to_control_before_the_lane_ends(world: StandIn) -> None:
    """The daemon then knows that its client left on purpose, not that it died."""
    world.hanging_up = False
    session = world.sessions[0]
    closer = threading.Thread(target=session.close)
    closer.start()
    assert select.select([world.far[0].control], [], [], 30)[0]
    assert world.far[0].control.recv(1) == b""
    with pytest.raises(BlockingIOError):
        world.far[0].lane.recv(1, socket.MSG_DONTWAIT)  # still open
    world.far[0].close()
    closer.join()


def test_results_can_be_fetched_after_close(world: StandIn) -> None:
    works = submit(world, [torch.ones(2), torch.ones(2)])
    session = world.sessions[0]
    wait_until(session, lambda: works[0].ended)
    session.close()
    assert works[0].wait()
    assert works[0].tensor.tolist() == [2, 2]
