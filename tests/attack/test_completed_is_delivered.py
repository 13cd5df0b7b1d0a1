"""What is complete on a rank reaches its peers, although its client is gone by then."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd.contract.messages import Completed
from dlcpd.io import commands
from dlcpd.io.config import EngineConfig
from tests.io.engines import Job

COUNT = 300_000
LATE = 2.0  # seconds


@pytest.fixture
def job() -> Iterator[Job]:
    started = Job(2, lambda rank: EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),)))
    yield started
    started.close()


@pytest.mark.check(114, "completed means delivered: a receiver comes after the sender has left")
@pytest.mark.parametrize("collective", ["broadcast", "scatter"])
def test_a_receiver_that_comes_after_the_sender_has_left_gets_the_value(
    job: Job, collective: str
) -> None:
    root, receiver = job.ranks
    parts = 2 if collective == "scatter" else 1
    options = {
        "collective": collective, "peer": 0, "in_place": False,
        "input_count": COUNT * parts, "output_count": COUNT, "output": 2_560_000,
    }  # fmt: skip
    root.tensor(0, COUNT * parts)[:] = np.arange(COUNT * parts, dtype=np.float32)
    root.submit(1, **(options | ({"output": 0} if collective == "broadcast" else {})))
    assert isinstance(root.outcome(1), Completed)
    job.die(root)
    left = job.engines[0].receive()
    assert left == commands.SessionLeft(1, 1, [commands.Begun(0, 1)], last=True)
    time.sleep(LATE)
    receiver.submit(1, **(options | ({"output": 0} if collective == "broadcast" else {})))
    assert isinstance(receiver.outcome(1), Completed)
    at, first = (0, 0) if collective == "broadcast" else (2_560_000, COUNT)
    expected = np.arange(first, first + COUNT, dtype=np.float32)
    assert np.array_equal(receiver.tensor(at, COUNT), expected)
    assert job.engines[0].receive() == commands.SessionDelivered(1)
