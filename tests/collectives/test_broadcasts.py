"""Broadcasts one after the other over a network that loses datagrams, as when a training begins:
each waits for the one before, and ranks come to them at times of their own."""

import random
from functools import partial

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.schedules.builders.broadcast import direct

SIZES = (360_000, 600, 40, 90_000, 600, 4)  # elements, scaled down below
SCALE, WORLD = 20, 2
SLOWEST = 5.0  # virtual seconds of one broadcast; 2.3 was the longest of 500 seeds


def lasting(seed: int, loss: float, world: int = WORLD) -> float:
    """Virtual seconds of the slowest broadcast. Every rank has the root's values."""
    rng = random.Random(seed)
    link = SimLink(loss=loss, jitter=rng.choice([0.0, 1e-4]), duplicate=rng.choice([0.0, 0.02]))
    net, slowest = SimNetwork(world, link, seed=seed, segment_size=256, chunk_segments=16), 0.0
    for number, size in enumerate(SIZES, 1):
        count = max(size // SCALE, 1)
        held = [np.full(count, number * (rank == 0), np.float32) for rank in range(world)]
        begun = net.now
        for rank in rng.sample(range(world), world):
            program = direct(rank, world, held[rank].nbytes, 0, 4096)
            net.submit(rank, number, held[rank], program=program)
            net.run(until=rng.choice([0.0, 1e-4, 0.02]))
        net.run(until=30.0, enough=partial(net.ended, number))
        assert net.ended(number), f"seed {seed}: broadcast {number} of {count} elements hangs"
        assert all((each == number).all() for each in held)
        slowest = max(slowest, net.now - begun)
    return slowest


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_none_hangs(loss: float) -> None:
    assert max(lasting(seed, loss) for seed in range(12)) < SLOWEST
