"""One client cannot keep the engine from serving the others."""

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Iterator

import msgpack
import pytest

from dlcpd.contract.messages import Completed
from dlcpd.io.config import EngineConfig
from tests.attack.tap import anonymous_memory
from tests.checks import Measured
from tests.io import engines
from tests.io.engines import Job, Rank

pytestmark = pytest.mark.executed  # their memory is measured

LARGE = int(os.environ.get("DLCPD_LARGE_ARENA", "1073741824"))  # bytes, sparse
LEFT = 1 << 30  # bytes that a client leaves behind
WATCHED = 1.5  # seconds before and after
JUNK = 190 << 10  # bytes of a frame: just what fits
JUNK_CLIENTS = 15  # one after the other
MOST_GROWTH = 64 << 20  # bytes of an engine, besides the arenas, which the clients' are


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job(2, lambda rank: EngineConfig(host=f"host{rank}"))
    yield made
    made.close()


class Neighbours(threading.Thread):
    """Operations of another job, one after the other, until `stop`."""

    def __init__(self, job: Job) -> None:
        super().__init__(daemon=True)
        self.ranks, self.times, self.wrong = job.ranks, list[float](), list[object]()
        self._stopped = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set() and not self.wrong:
            number += 1
            begin = time.monotonic()
            for rank in self.ranks:
                rank.submit(number, count=250_000)
            outcomes = [rank.outcome(number) for rank in self.ranks]
            self.times.append(time.monotonic() - begin)
            self.wrong = [each for each in outcomes if not isinstance(each, Completed)]

    def stop(self) -> str:
        """What they saw; all must have gone well."""
        self._stopped.set()
        self.join(engines.PATIENCE)
        assert not self.wrong, self.wrong
        assert self.times
        return _summary(self.times)


def _summary(times: list[float]) -> str:
    ordered = sorted(times)
    return (
        f"{len(ordered)} operations of 1 MB, p50 {1e3 * ordered[len(ordered) // 2]:.0f} ms, "
        f"worst {1e3 * ordered[-1]:.0f} ms"
    )


@pytest.mark.check(10, "clients' junk, in frames as large as may be: each is cut off, others go on")
def test_junk(job: Job, measured: Measured) -> None:
    """Parsing such a frame takes an engine a millisecond, in which it serves nobody else."""
    memory = anonymous_memory(job.engines[0].process.pid)
    neighbours = Neighbours(job)
    neighbours.start()
    frame = msgpack.packb([1, list(range(JUNK // 5))])[:JUNK]
    sent = 0
    for number in range(JUNK_CLIENTS):
        hostile = job.open(0, session=2 + number)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 1000:
                hostile.lane.send(frame)
                sent += 1
        time.sleep(0.1)
    saw = neighbours.stop()
    report = job.engines[0].report()
    counted = report["counters"]["bad_message"]
    assert counted == JUNK_CLIENTS, "the first frame ends a session"
    assert sent < 5 * JUNK_CLIENTS  # and what a socket's buffer holds
    assert list(report["sessions"]) == ["1"]
    growth = anonymous_memory(job.engines[0].process.pid) - memory
    assert growth < MOST_GROWTH
    measured(
        f"{JUNK_CLIENTS} clients, {sent} frames, {counted} read; beside it {saw}; "
        f"memory {growth / (1 << 20):+.1f} MB"
    )


@pytest.mark.check(10, f"a bounded operation of {LARGE >> 20} MiB that one rank submits")
def test_a_large_operation(job: Job, monkeypatch: pytest.MonkeyPatch, measured: Measured) -> None:
    """Its magnitudes are looked at in pieces: for seconds, in which its engine serves others."""
    monkeypatch.setattr(engines, "ARENA", LARGE)
    large: Rank = job.open(0, session=2)
    memory = anonymous_memory(job.engines[0].process.pid)
    neighbours = Neighbours(job)
    neighbours.start()
    begin = time.monotonic()
    large.submit(1, count=LARGE // 4, max_loss=0.01, name="large", deadline=600.0)
    while not job.engines[0].report()["sessions"]["2"]["open"]:
        assert time.monotonic() < begin + 120.0
        time.sleep(0.05)
    took = time.monotonic() - begin
    saw = neighbours.stop()
    growth = anonymous_memory(job.engines[0].process.pid) - memory
    assert growth < MOST_GROWTH
    measured(f"begun after {took:.1f} s; beside it {saw}; memory {growth / (1 << 20):+.1f} MB")


@pytest.mark.check(10, f"a client dies and leaves {LEFT >> 20} MiB: others go on")
def test_memory_that_is_left(job: Job, monkeypatch: pytest.MonkeyPatch, measured: Measured) -> None:
    """The engine is the last one that has it, and to free it takes longer than many operations."""
    monkeypatch.setattr(engines, "ARENA", LEFT)
    dying: Rank = job.open(0, session=2)
    dying.memory[:: mmap.PAGESIZE] = 1
    neighbours = Neighbours(job)
    neighbours.start()
    time.sleep(WATCHED)
    alone = len(neighbours.times)
    job.die(dying)
    job.close_left(0, session=2)
    time.sleep(WATCHED)
    neighbours.stop()
    assert list(job.engines[0].report()["sessions"]) == ["1"]
    measured(
        f"before: {_summary(neighbours.times[:alone])}; then: {_summary(neighbours.times[alone:])}"
    )
