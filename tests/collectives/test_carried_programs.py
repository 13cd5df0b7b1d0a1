"""Operations whose READYs carry data: ranks come late or leave, programs and networks are any."""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.collectives.execution import Execution
from dlcpd.collectives.holdings import Holdings, MemoryBudget
from dlcpd.schedules.model import Program, Reduce
from dlcpd.schedules.proof.interpreter import interpret
from tests.collectives.test_carried import (
    COUNT,
    DELAY,
    READY_DATA,
    SEGMENT,
    assert_idle,
    kinds,
    reduce,
    wide,
)
from tests.collectives.test_leaving import COLLECTIVES, leave_early
from tests.collectives.test_random_schedules import WatchedPool, assert_nothing_left, submit
from tests.schedules.random_schedules import random_schedule

# --- ranks that come late, and ranks that leave -----------------------------------------------


@pytest.mark.parametrize(("limit", "kept"), [(4 * COUNT, 1), (8 * COUNT, 2), (0, 0)])
def test_what_comes_early_is_kept_up_to_the_limit_and_sent_again_beyond(
    limit: int, kept: int
) -> None:
    net = wide()
    reduce(net, 1)
    net.run()
    kinds(net)
    early = net.sessions[0].flows[1].arrivals.early
    early.limit = limit
    parts = {number: draw("float32", 2, COUNT, number) for number in (2, 3)}
    expected = {n: rank_ordered(each, "float32", "sum") for n, each in parts.items()}
    for number, each in parts.items():
        net.submit(1, number, each[1])
    net.run(until=3e-3)  # less than the timeout of a repetition, more than the delay of an answer
    assert early.size == kept * 4 * COUNT
    assert kinds(net) == Counter({READY_DATA: 2, "READY_ACK": kept}) - Counter()
    for number, each in parts.items():
        net.submit(0, number, each[0])
    net.run(until=1.2 * DELAY)
    assert len(net.done(0)) == 1 + kept
    net.run()
    for number, each in parts.items():
        assert all((part == expected[number]).all() for part in each)
    assert_idle(net)


def test_a_rank_whose_data_came_with_ready_owes_nothing_while_another_is_late() -> None:
    net = wide(3)
    for rank in (0, 1):
        net.submit(rank, 1, draw("float32", 3, COUNT, 1)[rank])
    net.run(until=0.1)
    flows = net.sessions[0].flows
    assert [flows[rank].arrivals.expected for rank in (1, 2)] == [False, True]
    assert net.open(0, 1).awaited()[1] == "rank(s) 2 to submit operation 1"


def test_an_operation_without_memory_for_its_data_fails_by_name() -> None:
    net = wide(3)
    holdings = net.accounts[0].holdings = Holdings(
        MemoryBudget.of(total=100, session=100, sessions=1)
    )
    net.submit_all(1, draw("float32", 3, COUNT, 1))
    net.run()
    failed = net.failed(0)[1]
    assert failed.code == "arena_full"
    assert "what arrives for operation 1" in failed.text
    assert holdings.held == 0
    net.accounts[0].holdings = Holdings()
    reduce(net, 2)
    net.run()
    assert_idle(net)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(("collective", "schedule"), COLLECTIVES)
def test_a_rank_with_its_results_may_leave(collective: str, schedule: str, late: int) -> None:
    net = SimNetwork(3, SimLink(loss=0.1), seed=late, segment_size=SEGMENT, peer_timeout=60.0)
    leave_early(net, collective, schedule, late, 64, operations=2)


# --- any program, any network ------------------------------------------------------------------


def adds_each_operand_once(made: Program) -> bool:
    """Whether no two receives of a sum have the same place, as in every schedule of the catalog."""
    sums = [(made.steps[part.reduction], part.coming) for part in made.parts.values()]
    return all(coming <= len(step.operands) for step, coming in sums if isinstance(step, Reduce))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 32),
    world=st.integers(2, 5),
    most=st.sampled_from([1 << 6, 1 << 9, 1 << 11, 1 << 13]),
    loss=st.sampled_from([0.0, 0.05, 0.2]),
    duplicate=st.sampled_from([0.0, 0.3]),
    jitter=st.sampled_from([0.0, 300e-6]),
    paths=st.integers(1, 2),
    early=st.sampled_from([0, 300, 1 << 18]),
)
def test_any_program_on_any_network(  # noqa: PLR0917  # hypothesis passes them by name
    seed: int,
    world: int,
    most: int,
    loss: float,
    duplicate: float,
    jitter: float,
    paths: int,
    early: int,
) -> None:
    link = SimLink(loss=loss, duplicate=duplicate, jitter=jitter)
    net = SimNetwork(world, link, seed=seed, segment_size=SEGMENT, paths=paths)
    net.scratch[:] = [WatchedPool(pool.size) for pool in net.scratch]
    for session in net.sessions:
        for flow in session.flows.values():
            flow.arrivals.early.limit = early
    operations = dict[int, tuple[list[Execution], list[bytes]]]()
    for number in (1, 2, 3):
        made = random_schedule(seed + number, world, most=most)
        assume(all(map(adds_each_operand_once, made.programs)))
        expected = interpret(
            made.programs, made.inputs, outputs=made.outputs, dtype=made.dtype, op=made.op
        )
        begun = submit(net, made, number, in_place=bool(seed % 2))
        operations[number] = begun, [each.tobytes() for each in expected]
    net.run()
    for begun, results in operations.values():
        for rank, operation in enumerate(begun):
            assert operation.memory[1].tobytes() == results[rank]
            assert_nothing_left(net, rank, operation)
    for rank in range(world):
        assert set(net.done(rank)) == net.released(rank) == {1, 2, 3}
    assert_idle(net)
