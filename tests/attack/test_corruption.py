"""Check 6: what a network or a forger changes is never taken for what was sent."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.messages import Completed
from dlcpd.io.config import EngineConfig
from tests.attack.tap import TappedJob, grown
from tests.attack.test_mutated_datagrams import Flood, all_reduce, counters
from tests.checks import Measured
from tests.collectives.test_divergence import PATIENCE, SwapSegments
from tests.io.engines import Job

COUNT = 700_000  # elements, 2.8 MB: 2,500 datagrams to each rank
CORRUPTED = 10_000
FORGED = 10_000
WAYS = ("compiled", "numpy")


def configuration(rank: int, *, corrupt: float = 0.0) -> EngineConfig:
    return EngineConfig(
        host=f"host{rank}",
        digest_every=1,
        segment_size=1152,
        chunk_bytes=100 * 1152,
        data_path=WAYS[rank % 2],
        inject_corrupt=corrupt,
        inject_seed=rank,
    )


@pytest.fixture
def corrupting() -> Iterator[Job]:
    made = Job(2, lambda rank: configuration(rank, corrupt=0.2), keyed=True)
    yield made
    made.close()


@pytest.mark.check(6, "checksums on: no corrupted datagram is accepted")
def test_corrupted_datagrams(corrupting: Job, measured: Measured) -> None:
    number, corrupted = 0, 0
    while corrupted < CORRUPTED:
        number += 1
        parts = draw("float32", 2, COUNT, number)
        expected = rank_ordered(parts, "float32", "sum").tobytes()
        outcomes = corrupting.all_reduce(number, parts)
        assert all(isinstance(outcome, Completed) for outcome in outcomes)
        for rank in corrupting.ranks:
            assert rank.tensor(0, COUNT).tobytes() == expected, number
        counted = [engine.counters() for engine in corrupting.engines]
        corrupted = sum(each["injected_corruption"] for each in counted)
    refused = sum(each.get("checksum", 0) for each in counted)
    assert refused > 0.9 * corrupted  # the others had another version, kind, token, ...
    measured(f"{corrupted:,} corrupted, {refused:,} refused by their checksums, 0 accepted")


@pytest.fixture
def tapped() -> Iterator[TappedJob]:
    made = TappedJob([configuration(rank) for rank in range(3)], keyed=True)
    yield made
    made.close()


@pytest.mark.check(6, "checksums on: no forged datagram of a token's holder is accepted")
def test_forged_datagrams(tapped: TappedJob, measured: Measured) -> None:
    before, number = counters(tapped), 0
    with Flood(tapped) as flood:
        while flood.sent < FORGED:
            assert flood.is_alive()
            number += 1
            flood.allowed = min(flood.allowed + 1000, FORGED)
            ended, _ = all_reduce(tapped, number)
            assert ended == {"right": 3}
        flood.rest()
        growth = [grown(*each) for each in zip(before, counters(tapped), strict=True)]
    refused = sum(found["checksum"] for found in growth)
    assert refused > FORGED / 4
    measured(
        f"{flood.sent:,} forged, {refused:,} refused by their checksums, {number} results right"
    )


@pytest.mark.check(6, "without: exchanged segments are reported by the next operation, or by close")
def test_exchanged_segments_of_any_operation(measured: Measured) -> None:
    reported = 0
    for wrong, last in ((1, 2), (2, 2)):
        tamper = SwapSegments(wrong)
        net = tamper.net = SimNetwork(3, tamper=tamper)
        for number in range(1, last + 1):
            net.submit_all(number, draw("float32", 3, 1000, number))
            net.run()
        for session in net.sessions:
            with suppress(KeyError):
                session.conclude(net.now, net.now + PATIENCE)
        net.run()
        assert tamper.swapped
        reported += sum(bool(s.broken) for s in net.sessions)
        assert {s.broken[0] for s in net.sessions if s.broken} == {"replica_divergence"}
    assert reported >= 4
    measured("both reported")


def test_draws_differ() -> None:
    """Else a result of another operation would pass for the right one."""
    first, second = draw("float32", 2, 100, 1), draw("float32", 2, 100, 2)
    assert not np.array_equal(first[0], second[0])
