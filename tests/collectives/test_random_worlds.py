"""Random collectives over random networks: all ranks get the same, and a rank that has its results
may leave. A long run: DLCPD_RANDOM_WORLDS=1000 pytest tests/collectives/test_random_worlds.py
"""

import os
import random

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from tests.collectives.test_leaving import COLLECTIVES, LATE, leave_early

SEEDS = range(int(os.environ.get("DLCPD_RANDOM_WORLDS", "16")))
pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_with_its_results_may_leave(seed: int) -> None:
    draws = random.Random(seed)
    collective, schedule = draws.choice(COLLECTIVES)
    world = draws.choice([2, 3, 4, 5])
    link = SimLink(
        loss=draws.choice([0.0, 0.05, 0.1, 0.2, 0.3]),
        jitter=draws.choice([0.0, 40e-6, 1e-3]),
        duplicate=draws.choice([0.0, 0.02]),
    )
    paths = draws.choice([1, 2])
    net = SimNetwork(world, link, seed=seed, peer_timeout=LATE * 2, paths=paths)
    leave_early(
        net,
        collective,
        schedule,
        late=draws.randrange(world),
        size=draws.choice([64, 640, 6400]),
        operations=draws.choice([1, 1, 2, 3]),
        wait=draws.choice([0.0, LATE]),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_all_reduces_are_the_same_on_all_ranks_and_exact_without_a_bound(seed: int) -> None:
    draws = random.Random(seed)
    world, rate = draws.choice([2, 3, 4, 5]), draws.choice([0.0, 0.0, 30_000.0])
    link = SimLink(
        loss=draws.choice([0.0, 0.01, 0.05, 0.1, 0.2, 0.35]),
        jitter=draws.choice([0.0, 40e-6, 1e-3, 5e-3]),
        duplicate=draws.choice([0.0, 0.02]),
        rate=rate,
        queue=draws.choice([16, 64]),
        classes=bool(rate) and draws.random() < 0.5,
        mark=draws.choice([8, 1 << 30]),
    )
    net = SimNetwork(
        world,
        link,
        seed=seed,
        segment_size=draws.choice([64, 128]),
        chunk_segments=draws.choice([4, 16, 40]),
        paths=draws.choice([1, 2, 3]),
        one_shot=draws.random() < 0.5,
        peer_timeout=5.0,
    )
    bound = draws.choice([0.0, 0.0, 0.1, 0.3])
    parts = {
        number: draw("float32", world, draws.choice([1, 7, 100, 1000, 5000]), seed + number)
        for number in range(1, draws.choice([1, 2, 4]) + 1)
    }
    results = {number: copies(each) for number, each in parts.items()}
    for number, arrays in results.items():
        for rank in draws.sample(range(world), world):
            name = "w" if bound else ""
            net.submit(rank, number, arrays[rank], max_loss=bound, name=name)
    net.run(until=60.0, max_steps=1_000_000)
    for rank in range(world):
        assert sorted(net.done(rank)) == sorted(parts), net.failed(rank)
        assert not net.sessions[rank].operations
    for number, arrays in results.items():
        for array in arrays[1:]:
            np.testing.assert_array_equal(array.view(np.uint32), arrays[0].view(np.uint32))
        if not bound:
            exact = rank_ordered(parts[number], "float32", "sum")
            np.testing.assert_array_equal(arrays[0].view(np.uint32), exact.view(np.uint32))
