"""Steps that an engine leaves to the client: each is computed once, in order, unless it is over."""

from collections.abc import Iterator

import pytest

from dlcp_client.operations.due_steps import DueSteps
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import OperationAborted
from dlcpd.contract.messages import MAX_TEXT, Due, Failed
from tests.client.stand_in import StandIn, completed

STEPS = 2  # of an operation


@pytest.fixture
def world() -> Iterator[StandIn]:
    made = StandIn(1)
    made.answering = False
    yield made
    made.close()


def begun(world: StandIn) -> Work:
    session = world.sessions[0]
    work = session.world.all_reduce_computed(session.zeros(100), session.zeros(100))
    world.wait_for(work.number)
    return work


def test_a_frame_that_is_read_twice_is_computed_once(world: StandIn) -> None:
    """As after Ctrl-C between a frame and its removal from the lane."""
    work, computed, far = begun(world), list[tuple[int, int]](), world.far[0]
    far.send(Due(1, 5, 0, 64, STEPS))
    far.send(Due(1, 6, 64, 336, STEPS))
    far.send(Due(1, 5, 0, 64, STEPS))

    def compute(start: int, stop: int) -> None:
        computed.append((start, stop))
        far.send(Due(1, 5, 0, 64, STEPS))
        if len(computed) == 2:
            far.send(completed(1))

    world.sessions[0].compute({work: compute})
    work.wait()
    assert computed == [(0, 64), (64, 400)]
    with world.arrived:
        assert world.arrived.wait_for(lambda: far.computed == [5, 6], timeout=30)


def test_steps_are_all_due_once_each_engine_has_asked_for_its_own() -> None:
    steps = DueSteps(frozenset({0, 1}))
    assert not steps.all_due
    steps.add(0, Due(1, 5, 64, 64, 2))
    steps.add(1, Due(1, 0, 0, 0, 0))
    assert not steps.all_due
    steps.add(0, Due(1, 4, 0, 64, 2))
    assert steps.all_due and not steps.all_taken
    assert sorted(steps) == [(0, 64), (64, 128)]
    for left in (2, 1):
        assert not steps.all_taken and len(list(steps)) == left
        steps.take()
    assert steps.all_taken


def test_sums_are_awaited_and_computed_later(world: StandIn) -> None:
    first, second = begun(world), begun(world)
    session, far = world.sessions[0], world.far[0]
    far.send(Due(2, 7, 0, 400, 1))
    far.send(Due(1, 6, 64, 336, STEPS))
    computed = list[int]()
    session.compute({second: lambda start, _: computed.append(start)}, wait=False)
    assert computed == [0], "the other is not due yet, and not waited for"
    session.compute({first: lambda start, _: computed.append(start)}, wait=False)
    far.send(Due(1, 5, 0, 64, STEPS))
    assert session.await_sums([second, first]) == [[], [(0, 64)]]
    session.compute({first: lambda start, _: computed.append(start)})
    assert computed == [0, 64, 0]
    far.send(Failed(1, "operation_aborted", "rank 1 has aborted it"))
    with pytest.raises(OperationAborted, match="rank 1 has aborted it"):
        first.wait()
    far.send(completed(2))
    with pytest.raises(OperationAborted, match="rank 1 has aborted it"):
        session.await_sums([second, first])


def test_a_computation_that_raises_is_told_and_raised(world: StandIn) -> None:
    work, far = begun(world), world.far[0]
    other = begun(world)
    far.send(Due(1, 5, 0, 64, STEPS))

    def compute(_start: int, _stop: int) -> None:
        far.send(Due(1, 6, 64, 336, STEPS))
        far.send(Due(2, 7, 0, 400, 1))
        raise ValueError("\ud800" + 2000 * "x")

    with pytest.raises(ValueError, match=r"x{2000}"):
        world.sessions[0].compute({work: compute, other: lambda *_: pytest.fail("it goes on")})
    with world.arrived:
        assert world.arrived.wait_for(lambda: len(far.computed) == 3, timeout=30)
    assert far.computed == [5, 6, 7]
    told = "ValueError: \\ud800" + 2000 * "x"
    assert far.errors == [told[:MAX_TEXT]] * 3


def test_no_step_of_a_failed_operation_is_computed(world: StandIn) -> None:
    work, far = begun(world), world.far[0]
    far.send(Due(1, 5, 0, 64, STEPS))
    far.send(Failed(1, "operation_aborted", "rank 1 has aborted it"))
    computed = list[int]()
    world.sessions[0].compute({work: lambda start, _: computed.append(start)})
    with pytest.raises(OperationAborted, match="rank 1 has aborted it"):
        work.wait()
    assert not computed


def test_a_step_of_an_unknown_operation_is_ignored(world: StandIn) -> None:
    world.far[0].send(Due(7, 5, 0, 64, STEPS))
    work = begun(world)
    world.far[0].send(completed(1))
    world.sessions[0].compute({work: lambda *_: pytest.fail("it is of another operation")})
    work.wait()


def test_the_first_operation_is_computed_first(world: StandIn) -> None:
    first, second, order = begun(world), begun(world), list[int]()
    for number in (2, 1):
        world.far[0].send(Due(number, 5, 0, 64, STEPS))
        world.far[0].send(Due(number, 6, 64, 336, STEPS))

    def compute(number: int) -> None:
        order.append(number)
        if len(order) == 4:
            world.far[0].send(completed(1))
            world.far[0].send(completed(2))

    pending = {first: lambda *_: compute(1), second: lambda *_: compute(2)}
    world.sessions[0].compute(pending)
    assert order == [1, 1, 2, 2]
