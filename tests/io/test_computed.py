"""Operations in which a client computes, over its lane: real engines on loopback."""

from collections.abc import Iterator

import pytest

from dlcpd.contract.messages import Completed, Computed, Due, Failed, Message, Released
from dlcpd.io import control_events
from dlcpd.io.config import EngineConfig
from tests.io.engines import FORKED, Job, Rank, failure

COUNT = 5000  # elements
OUTPUT = 1 << 20  # byte of the arena


@pytest.fixture
def job() -> Iterator[Job]:
    def configure(rank: int) -> EngineConfig:
        return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),), digest_every=1)

    started = Job(2, configure, FORKED)
    yield started
    started.close()


def submit(job: Job, number: int, *, deadline: float = 15.0) -> None:
    """Ranks contribute 1 and 2; outputs hold 10."""
    for at, rank in enumerate(job.ranks):
        rank.tensor(0, COUNT)[:] = at + 1
        rank.tensor(OUTPUT, COUNT)[:] = 10
        options = {"output": OUTPUT, "computes": True, "in_place": False, "deadline": deadline}
        rank.submit(number, count=COUNT, **options)


def due(rank: Rank) -> Due:
    while isinstance(message := rank.receive(), Released):
        pass  # of the operation before
    assert isinstance(message, Due), message
    return message


def compute(rank: Rank, message: Due) -> None:
    """output -= sum / 2; then the answer."""
    start, count = message.start, message.size // 4
    rank.tensor(OUTPUT + start, count)[:] -= rank.tensor(start, count) / 2
    rank.send(Computed(message.operation, message.step))


def outcomes(job: Job, number: int) -> list[type[Message]]:
    return [type(rank.outcome(number)) for rank in job.ranks]


def test_every_rank_gets_what_the_clients_computed(job: Job) -> None:
    for number in (1, 2):
        submit(job, number)
        for rank in job.ranks:
            compute(rank, due(rank))
        assert outcomes(job, number) == [Completed] * 2
        for rank in job.ranks:
            assert (rank.tensor(OUTPUT, COUNT) == 8.5).all()


def test_a_client_knows_how_many_steps_it_has(job: Job) -> None:
    """Of an operation that is too small to be divided, one client has none."""
    for rank in job.ranks:
        rank.submit(1, count=4, output=OUTPUT, computes=True, in_place=False)
    first, second = map(due, job.ranks)
    assert (first.start, first.size, first.steps) == (0, 16, 1)
    assert (second.size, second.steps) == (0, 0)
    compute(job.ranks[0], first)
    assert outcomes(job, 1) == [Completed] * 2


def test_an_answer_that_is_not_due_is_counted_and_changes_nothing(job: Job) -> None:
    submit(job, 1)
    first = job.ranks[0]
    message = due(first)
    strange = [(1, 0), (1, 1 << 20), (2, message.step), ((1 << 32) - 1, message.step)]
    for operation, step in strange:
        first.send(Computed(operation, step))
    compute(first, message)
    first.send(Computed(1, message.step))
    compute(job.ranks[1], due(job.ranks[1]))
    assert outcomes(job, 1) == [Completed] * 2
    assert (first.tensor(OUTPUT, COUNT) == 8.5).all()
    assert job.engines[0].counters()["computed_not_due"] == len(strange) + 1


def test_a_client_that_never_answers_is_named_and_other_operations_go_on(job: Job) -> None:
    submit(job, 1, deadline=0.5)
    compute(job.ranks[0], due(job.ranks[0]))
    late = due(job.ranks[1])
    for rank in job.ranks:
        rank.submit(2, count=COUNT, input=2 * OUTPUT, output=2 * OUTPUT)
    assert outcomes(job, 2) == [Completed] * 2
    texts = [failure(rank.outcome(1))[1:] for rank in job.ranks]
    assert [code for code, _ in texts] == ["deadline_exceeded"] * 2
    assert "data of rank(s) 1 for operation 1" in texts[0][1]
    assert "this rank's trainer to compute bytes 10048..20000 of operation 1" in texts[1][1]
    compute(job.ranks[1], late)
    submit(job, 3)
    for rank in job.ranks:
        compute(rank, due(rank))
    assert outcomes(job, 3) == [Completed] * 2
    assert job.engines[1].counters()["computed_not_due"] == 1


def test_a_computation_that_failed_fails_the_operation_everywhere(job: Job) -> None:
    submit(job, 1)
    message = due(job.ranks[1])
    first, last = message.start, message.start + message.size
    job.ranks[1].send(Computed(1, message.step, "ValueError: no"))
    text = f"operation 1: the trainer of rank 1 could not compute bytes {first}..{last}: "
    assert failure(job.ranks[1].outcome(1)) == (1, "computation_failed", f"{text}ValueError: no")
    told = job.engines[1].receive()
    assert isinstance(told, control_events.OperationsFailed), told
    [failed] = told.failures
    assert (failed.code, failed.ranks) == ("computation_failed", [0])
    job.ranks[1].send(Computed(1, message.step))
    assert job.engines[1].counters()["computed_not_due"] == 1


def test_the_end_of_a_client_between_due_and_computed_is_told_to_the_peers(job: Job) -> None:
    submit(job, 1)
    compute(job.ranks[0], due(job.ranks[0]))
    due(job.ranks[1])
    job.die(job.ranks[1])
    while isinstance(left := job.engines[1].receive(), control_events.LeftOpen):
        assert left.operations == 1
    assert isinstance(left, control_events.OperationsFailed), left
    assert left.failures[0].code == "peer_lost"


def test_memory_is_checked_in_every_request(job: Job) -> None:
    """The rest of equal requests is checked once."""
    submit(job, 1)
    for rank in job.ranks:
        compute(rank, due(rank))
    assert outcomes(job, 1) == [Completed] * 2
    for rank in job.ranks:
        rank.submit(2, count=COUNT, output=64, computes=True, in_place=False)
    texts = [failure(rank.outcome(2))[2] for rank in job.ranks]
    assert any("must be other memory" in text for text in texts)
    assert (job.ranks[0].tensor(OUTPUT, COUNT) == 8.5).all()


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"output": 0}, "bad_message", "must be other memory"),
        ({"output": 64}, "bad_message", "must be other memory"),
        ({"collective": "broadcast", "peer": 0}, "bad_message", "in broadcast no client computes"),
        ({"schedule": "ring"}, "bad_message", "only in schedule direct"),
        ({"codec": "int8", "name": "g"}, "bad_policy", "encodes results, which takes bf16"),
    ],
)
def test_a_request_that_cannot_be_computed_fails(
    job: Job, options: dict[str, object], code: str, text: str
) -> None:
    fields = {"output": OUTPUT, "computes": True, "in_place": False}
    job.ranks[0].submit(1, count=COUNT, **{**fields, **options})
    message = job.ranks[0].outcome(1)
    assert isinstance(message, Failed)
    assert message.code == code and text in message.text, message
