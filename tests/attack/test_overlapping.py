"""Two operations at once on the same memory: the second is refused, by name, on all ranks."""

from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd.contract.messages import Completed
from dlcpd.io import control_events
from dlcpd.io.config import EngineConfig
from tests.io.engines import FORKED, Job, failure

COUNT = 1 << 18  # float32: 1 MB, long under way
BYTES = 4 * COUNT


@pytest.fixture
def job() -> Iterator[Job]:
    def configure(rank: int) -> EngineConfig:
        return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),))

    started = Job(2, configure, FORKED)
    yield started
    started.close()


@pytest.mark.check(16, "operations that overlap in memory: the second is refused on all ranks")
@pytest.mark.parametrize(
    "second",
    [{"input": 0, "output": 0}, {"input": BYTES - 64, "output": 2 * BYTES},
     {"input": 2 * BYTES, "output": 64}],
    ids=["the same", "reads its end", "writes its start"],
)  # fmt: skip
def test_the_second_is_refused(job: Job, second: dict[str, int]) -> None:
    for rank in job.ranks:
        rank.tensor(0, COUNT)[:] = 1.0
    job.ranks[0].submit(1, count=COUNT)  # open: the other rank has yet to submit it
    job.ranks[0].submit(2, count=1000, **second)
    number, code, text = failure(job.ranks[0].outcome(2))
    assert (number, code) == (2, "bad_operation")
    assert "while operation 1 " in text and f" 0..{BYTES}" in text
    event = job.engines[0].receive()
    assert isinstance(event, control_events.OperationsFailed)
    assert [(f.operation, f.ranks, f.code) for f in event.failures] == [(2, [1], code)]
    job.ranks[1].submit(1, count=COUNT)
    for rank in job.ranks:
        assert isinstance(rank.outcome(1), Completed)
        assert (rank.tensor(0, COUNT) == 2.0).all()


@pytest.mark.check(16, "operations that overlap in memory: the second is refused on all ranks")
def test_reading_the_same_is_no_conflict(job: Job) -> None:
    source = 0
    for rank in job.ranks:
        rank.tensor(source, 1000)[:] = 1.0
        for number in (1, 2, 3):
            rank.submit(number, count=1000, input=source, output=number * 4096, in_place=False)
    for rank in job.ranks:
        for number in (1, 2, 3):
            assert isinstance(rank.outcome(number), Completed)
            assert np.all(rank.tensor(number * 4096, 1000) == 2.0)
