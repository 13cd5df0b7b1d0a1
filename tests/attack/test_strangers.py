"""Floods of datagrams by those who are in no session."""

import statistics
import time
from collections.abc import Iterator

import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.io.config import EngineConfig
from tests.attack.flood import flood
from tests.checks import Measured
from tests.io.engines import PATIENCE, Job

COUNT = 1_000_000  # float32: operations of 4 MB
RATE = 300_000  # datagrams per second
SECONDS = 1.0
SOON = 10.0  # seconds, until GRO is back


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job(2, lambda rank: EngineConfig(host=f"host{rank}"))
    yield made
    made.close()


class Work:
    """Operations one after the other, each looked at."""

    def __init__(self, job: Job) -> None:
        self.job, self.number = job, 0
        self.parts = draw("float32", 2, COUNT, 1)
        self.expected = rank_ordered(self.parts, "float32", "sum").tobytes()

    def p50(self, seconds: float) -> float:
        """Median time of an operation, in seconds; every result is right."""
        times: list[float] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or not times:
            self.number += 1
            for rank, part in zip(self.job.ranks, self.parts, strict=True):
                rank.tensor(0, COUNT)[:] = part
            begin = time.monotonic()
            for rank in self.job.ranks:
                rank.submit(self.number, count=COUNT, deadline=PATIENCE)
            outcomes = [rank.outcome(self.number) for rank in self.job.ranks]
            times.append(time.monotonic() - begin)
            assert [type(outcome).__name__ for outcome in outcomes] == ["Completed"] * 2, outcomes
            for rank in self.job.ranks:
                assert rank.tensor(0, COUNT).tobytes() == self.expected
        return statistics.median(times)


@pytest.mark.check(9, f"{RATE:,} datagrams of strangers per second beside operations of 4 MB")
@pytest.mark.parametrize("shape", ["version", "bursts"])
def test_strangers_are_refused_by_the_kernel(job: Job, shape: str, measured: Measured) -> None:
    work, engine = Work(job), job.engines[0]
    before = work.p50(0.5)
    read = engine.report()["effort"]["receive_calls"]
    counters = engine.counters()
    with flood(job.endpoints[0][0].port, RATE, shape):
        during = work.p50(SECONDS)
    report = engine.report()
    grown = {k: v - counters.get(k, 0) for k, v in report["counters"].items()}
    assert grown["kernel_dropped"] > 100
    assert not {"token", "version", "short", "length"} & {k for k, v in grown.items() if v}
    assert report["paths"][0]["gro"] == job.engines[1].report()["paths"][0]["gro"]
    measured(
        f"{shape}: p50 {1e3 * before:.1f} -> {1e3 * during:.1f} ms, {grown['kernel_dropped']:,} "
        f"messages refused unread, {report['effort']['receive_calls'] - read:,} receive calls"
    )


@pytest.mark.check(9, "GRO, which a flood of single datagrams ends, comes back")
def test_gro_comes_back(job: Job, measured: Measured) -> None:
    """The flood is of one who knows what our tokens begin with."""
    work, engine = Work(job), job.engines[0]
    if not engine.report()["paths"][0]["gro"]:
        pytest.skip("this kernel has no UDP_GRO")
    before = work.p50(0.2)
    with flood(job.endpoints[0][0].port, 50_000, "insider"):
        during = work.p50(0.5)
        deadline = time.monotonic() + PATIENCE
        while engine.report()["paths"][0]["gro"] and time.monotonic() < deadline:
            time.sleep(0.05)
        lost = not engine.report()["paths"][0]["gro"]
    begin = time.monotonic()
    while not engine.report()["paths"][0]["gro"]:
        assert time.monotonic() < begin + SOON + PATIENCE
        work.p50(0.1)
    measured(
        f"p50 {1e3 * before:.1f} -> {1e3 * during:.1f} ms at 50,000 per second; GRO lost: {lost}, "
        f"back after {time.monotonic() - begin:.1f} s"
    )
