"""The order of steps, and the peers that an operation waits for: without a transport."""

import pytest

from dlcpd.collectives.awaiting import Awaiting
from dlcpd.collectives.progress import Progress
from dlcpd.schedules.builders.all_reduce import one_shot
from dlcpd.schedules.model import Buffer, Program, Receive, Reduce, Send, Span

OWN, SCRATCH = Span(Buffer.INPUT, 0, 8), Span(Buffer.SCRATCH, 0, 8)
RESULT = Span(Buffer.OUTPUT, 0, 8)
# Rank 0 of three: it adds what rank 1 sends, gives rank 2 the result, and gets 8 bytes more of it.
PROGRAM = Program(
    (
        Send(1, 0, OWN),
        Receive(1, 0, SCRATCH),
        Reduce(RESULT, (OWN, SCRATCH), after=(1,)),
        Send(2, 0, RESULT, after=(2,)),
        Receive(2, 0, Span(Buffer.OUTPUT, 8, 8)),
    ),
    frozenset({1, 2}),
    (8,),
)
MEMBERS = (10, 11, 12)
PEERS = frozenset({11, 12})


def test_a_step_may_begin_when_the_steps_before_it_are_done() -> None:
    progress = Progress(PROGRAM)
    assert progress.first() == [0, 1, 4]
    assert progress.close(0) == []
    assert progress.close(1) == [2]
    assert progress.close(2) == [3]
    assert progress.close(4) == []
    assert progress.open == {3}
    assert progress.close(3) == []
    assert not progress.open


def test_results_and_sends_from_the_callers_memory_are_counted() -> None:
    progress = Progress(PROGRAM)
    seen = [(progress.results, progress.holding)]
    for position in (0, 1, 2, 3, 4):
        progress.close(position)
        seen.append((progress.results, progress.holding))
    assert seen == [(3, 2), (3, 1), (2, 1), (1, 1), (1, 0), (0, 0)]


def test_a_step_ends_once() -> None:
    progress = Progress(PROGRAM)
    progress.close(0)
    with pytest.raises(KeyError):
        progress.close(0)


@pytest.mark.parametrize("world", [2, 3, 5])
def test_every_step_of_a_schedule_gets_its_turn_once(world: int) -> None:
    program = one_shot(0, world, 64)
    progress = Progress(program)
    ready, begun = progress.first(), list[int]()
    while ready:
        begun.append(ready.pop())
        ready += progress.close(begun[-1])
    assert sorted(begun) == list(range(len(program.steps)))
    assert (progress.results, progress.holding, progress.open) == (0, 0, set())


def awaiting(
    *done: int, ready: frozenset[int] = PEERS, staged: frozenset[int] = frozenset()
) -> Awaiting:
    progress = Progress(PROGRAM)
    for position in done:
        progress.close(position)
    return Awaiting(progress, MEMBERS, PEERS, ready, staged)


@pytest.mark.parametrize(
    ("done", "ready", "ranks", "text"),
    [
        ((), frozenset({12}), {11}, "rank(s) 11 to submit operation 7"),
        ((), frozenset(), {11, 12}, "rank(s) 11, 12 to submit operation 7"),
        ((0,), PEERS, {11}, "data of rank(s) 11 for operation 7"),  # a reduction waits for them
        ((0, 1, 2), PEERS, {12}, "data of rank(s) 12 for operation 7"),
        ((1, 2, 4), PEERS, {11, 12}, "rank(s) 11, 12 to take their data of operation 7"),
        ((0, 1, 2, 4), PEERS, {12}, "rank(s) 12 to take their data of operation 7"),
    ],
)
def test_the_ranks_that_must_act_first_are_named(
    done: tuple[int, ...], ready: frozenset[int], ranks: set[int], text: str
) -> None:
    found = awaiting(*done, ready=ready)
    assert found.ranks_and_text("operation 7") == (frozenset(ranks), text)


def test_a_rank_that_may_lack_ready_has_to_take_the_data_that_it_carries() -> None:
    found = awaiting(0, 1, 2, 4, 3)._replace(unconfirmed=frozenset({11}))
    assert found.ranks_and_text("it") == (frozenset({11}), "rank(s) 11 to take their data of it")


def test_an_operation_needs_a_rank_whose_data_it_lacks() -> None:
    assert awaiting(ready=frozenset({12})).needs(11)
    assert awaiting(0, 1, 2).needs(12)
    assert not awaiting(0, 1, 2).needs(11)
    assert not awaiting(1, 2, 4).needs(12)  # it has not taken its data, and may go without them
    assert awaiting(0, 1, 4).needs(12)  # the reduction has yet to come: its result is for rank 12


def test_a_rank_owes_data_until_they_are_here() -> None:
    assert awaiting().owed_by(11) and awaiting().owed_by(12)
    assert not awaiting(1).owed_by(11)
    assert not awaiting(1, 4).owed_by(12)


def test_data_that_wait_for_their_place_are_here() -> None:
    found = awaiting(0, 2, staged=frozenset({1, 4}))
    assert not found.owed_by(11) and not found.owed_by(12)
    assert not found.ranks_and_text("it")[0] & {11}, "another step must end first"
