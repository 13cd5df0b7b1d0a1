"""Each direction between two ranks has a segment size of its own, which may change with every
operation."""

import random

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered

SIZES = (64, 128, 192, 512)


def change(net: SimNetwork, seed: int) -> set[int]:
    """Give every flow a size by chance; which ones are in use."""
    rng = random.Random(seed)
    for session in net.sessions:
        for flow in session.flows.values():
            flow.segment_size = rng.choice(SIZES)
    return {flow.segment_size for s in net.sessions for flow in s.flows.values()}


@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_results_are_exact_whatever_the_sizes(seed: int, one_shot: bool) -> None:
    net = SimNetwork(
        3,
        SimLink(loss=0.05, duplicate=0.02, jitter=40e-6),
        seed=seed,
        segment_size=128,
        chunk_segments=30,
        paths=2,
        one_shot=one_shot,
    )
    for number, count in enumerate((1, 300, 2_000, 7_001), 1):
        assert len(change(net, seed + number)) > 1
        parts = draw("float32", 3, count, number)
        expected = rank_ordered(parts, "float32", "sum").tobytes()
        net.submit_all(number, parts)
        change(net, seed - number)  # under way: what has begun keeps its sizes
        net.run()
        assert [part.tobytes() for part in parts] == [expected] * 3
    assert not net.counted("length")


def test_what_is_waived_at_one_size_comes_back_at_another() -> None:
    net = SimNetwork(2, SimLink(loss=0.2), seed=2, segment_size=64, chunk_segments=20)
    produced = delivered = np.zeros(4000)
    rng = np.random.default_rng(1)
    for number in range(1, 9):
        change(net, number)
        last = number == 8
        parts = [
            np.zeros(4000, np.float32) if last else rng.integers(1, 50, 4000).astype(np.float32)
            for _ in range(2)
        ]
        produced = produced + np.sum(parts, axis=0)
        net.submit_all(number, parts, max_loss=0.0 if last else 0.3, name="w", fill="residual")
        net.run()
        delivered = delivered + parts[0]
    assert sum(net.done(rank)[number].stats.waived for rank in (0, 1) for number in range(1, 8))
    assert (delivered == produced).all()
