"""More sums open at once than C's table has rows, in jobs that share their engines."""

import time
from collections import defaultdict
from random import Random

import numpy as np
import pytest

from dlcpd.contract.messages import Completed
from dlcpd.core.wire.header import HEADER_SIZE, Kind
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.sums import MAX_SUMS
from tests.attack.tap import PER_LOOK, TappedJob
from tests.checks import Measured
from tests.io.engines import PATIENCE, Rank

pytestmark = pytest.mark.executed  # their memory is measured

RANKS, JOBS, OPERATIONS = 3, 3, 700  # 2,100 sums on each engine
SEGMENT = 256  # bytes
SPACING = 1536  # bytes of the arena for each operation
WANTED = 2000  # sums that have begun on each engine when the rest is let go
MOST = 40.0  # seconds to wait for them, on a busy machine


class ShufflingJob(TappedJob):
    """Between its ranks each transfer is kept back but for one segment; of each sum, all of one
    peer's operand. `release` lets all go, in any order."""

    def __init__(self) -> None:
        configs = [
            EngineConfig(
                host=f"host{rank}",
                segment_size=SEGMENT,
                inject_loss=0.02,
                inject_seed=rank,
                peer_timeout=20.0,
                congestion_control=False,
            )
            for rank in range(RANKS)
        ]
        self.random = Random(32)
        self.holding = True
        self.held: list[tuple[int, bytes]] = []  # receiver, datagram
        self.begun: dict[int, set[bytes]] = defaultdict(set)  # by receiver: sums with a segment
        super().__init__(configs)

    def forward(self) -> int:
        passed = 0
        for (_, target), sock in self.taps.items():
            for _ in range(PER_LOOK):
                try:
                    data = sock.recv(1 << 16)
                except BlockingIOError:
                    break
                passed += len(data) > HEADER_SIZE and data[1] == Kind.DATA
                if self._passes(target, data):
                    sock.sendto(data, tuple(self.endpoints[target][0]))
                else:
                    self.held.append((target, data))
        return passed

    def _passes(self, target: int, data: bytes) -> bool:
        if len(data) < HEADER_SIZE or data[1] != Kind.DATA or not self.holding:
            return True
        sum_of = data[4:8] + data[12:16] + data[16:18]  # operation, session, stream
        if sum_of in self.begun[target]:
            return False
        self.begun[target].add(sum_of)
        return True

    def release(self, count: int) -> None:
        """Some of what is held, from anywhere."""
        for _ in range(min(count, len(self.held))):
            at = self.random.randrange(len(self.held))
            self.held[at], self.held[-1] = self.held[-1], self.held[at]
            target, data = self.held.pop()
            sock = next(sock for (_, to), sock in self.taps.items() if to == target)
            sock.sendto(data, tuple(self.endpoints[target][0]))


def counts(number: int) -> int:
    """Elements of an operation: sums of one to four segments."""
    return SPACING // 4 - 64 * (number % 4) * (number % 2) - number % 7


def submit(rank: Rank, number: int, job: int, value: int) -> None:
    offset, count = (number - 1) * SPACING, counts(number)
    rank.tensor(offset, count)[:] = np.arange(count, dtype=np.float32) * value + number + job
    rank.submit(
        number, count=count, input=offset, output=offset, deadline=4 * PATIENCE, schedule="direct"
    )


def shuffled(job: ShufflingJob) -> None:
    """Hold until nothing more comes, then let go."""
    deadline = time.monotonic() + MOST
    while min(map(len, job.begun.values())) < WANTED and time.monotonic() < deadline:
        job.forward()
    job.holding = False
    while job.held:
        job.release(64)
        job.forward()


@pytest.mark.check(107, "2,100 sums of three jobs open at once, with loss and reordering")
def test_more_sums_than_rows(measured: Measured) -> None:
    job = ShufflingJob()
    try:
        jobs = [job.ranks, *[[job.open(r, session=s) for r in range(RANKS)] for s in (2, 3)]]
        for number in range(1, OPERATIONS + 1):
            for at, ranks in enumerate(jobs):
                for value, rank in enumerate(ranks, 1):
                    submit(rank, number, at, value)
            job.forward()
        shuffled(job)
        begun = min(len(sums) for sums in job.begun.values())
        assert begun >= WANTED > MAX_SUMS
        for ranks in jobs:
            for rank in ranks:
                rank.lane.settimeout(0.01)
        done = wait(job, [rank for ranks in jobs for rank in ranks])
        assert done == RANKS * JOBS * OPERATIONS
        for at, ranks in enumerate(jobs):
            for rank in ranks:
                check(rank, at)
        assert all(engine.process.poll() is None for engine in job.engines)
        measured(f"{begun} sums had begun on the engine with the fewest; {done} results right")
    finally:
        job.close()


def wait(job: ShufflingJob, ranks: list[Rank]) -> int:
    """Operations that completed, of all of them."""
    done, deadline = 0, time.monotonic() + 3 * PATIENCE
    left = {id(rank): OPERATIONS for rank in ranks}
    while any(left.values()) and time.monotonic() < deadline:
        job.forward()
        for rank in ranks:
            while left[id(rank)]:
                try:
                    message = rank.receive()
                except (TimeoutError, BlockingIOError):
                    break
                assert not getattr(message, "code", ""), message
                if isinstance(message, Completed):
                    left[id(rank)] -= 1
                    done += 1
                job.forward()
    return done


def check(rank: Rank, job: int) -> None:
    for number in range(1, OPERATIONS + 1):
        count = counts(number)
        expected = np.zeros(count, np.float32)
        for value in range(1, RANKS + 1):
            expected += np.arange(count, dtype=np.float32) * value + number + job
        assert (rank.tensor((number - 1) * SPACING, count) == expected).all(), number
