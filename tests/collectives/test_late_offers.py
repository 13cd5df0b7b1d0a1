"""The network repeats an earlier offer to waive segments after a later one: no segment is lost, and
none is added twice (P4)."""

import random
from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from dlcp_lab.simulation.network import SimLink, SimNetwork, Tamper
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.header import KIND, Kind
from dlcpd.numerics.returning import add_back

COUNT, RANKS, NAME = 6000, 3, "layer"
SEGMENT = 64  # bytes: 16 elements
SEEDS = (30, 52, 59)  # each adds an element twice where senders answer every FINAL


def echo(seed: int) -> Tamper:
    """Loses PERMITs, so that receivers ask, and repeats earlier FINALs at random."""
    rng, asked = random.Random(seed), defaultdict[tuple[int, int], list[bytes]](list)

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        if data[KIND] == Kind.PERMIT:
            return []
        earlier = asked[source, target]
        repeated = [rng.choice(earlier)] if earlier and rng.random() < 0.3 else []
        if data[KIND] == Kind.FINAL:
            earlier.append(data)
        return [data, *repeated]

    return tamper


def heavy_segments(rng: np.random.Generator) -> NDArray[np.float32]:
    """Whole numbers; one segment in twenty has most of the energy, and may not be waived."""
    heavy = np.repeat(rng.random(COUNT * 4 // SEGMENT) < 0.05, SEGMENT // 4)
    values = np.where(heavy, 1024, 1).astype(np.float32)
    return values * rng.integers(1, 4, COUNT).astype(np.float32)


def reduced(seed: int) -> tuple[SimNetwork, NDArray[np.float32], NDArray[np.float32]]:
    """The network after an all-reduce; what ranks gave, and what they got or keep."""
    link = SimLink(loss=0.12, delay=10e-3)
    net = SimNetwork(RANKS, link, seed=3, segment_size=SEGMENT, chunk_segments=200)
    net.tamper = echo(seed)
    rng = np.random.default_rng(seed)
    held = [heavy_segments(rng) for _ in range(RANKS)]
    produced = np.sum(held, axis=0)
    net.submit_all(1, held, max_loss=0.2, name=NAME, deadline=20.0)
    net.run(enough=lambda: net.ended(1))
    net.run()
    assert not any(net.failed(rank) for rank in range(RANKS))
    owed = np.zeros(COUNT, np.float32)
    for accounts in net.accounts:
        add_back(owed.view(np.uint8), accounts.residuals.take((NAME, "float32", COUNT)), "float32")
    return net, produced, held[0] + owed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_offer_does_not_send_what_its_sender_keeps(seed: int) -> None:
    net, produced, delivered = reduced(seed)
    assert net.counted("energy_veto"), "some offers are refused, and come again"
    assert (delivered == produced).all()


def test_a_sender_that_answers_every_offer_adds_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network above finds it."""
    monkeypatch.setattr(TransferSender, "on_offer", lambda _self, _number: True)
    pairs = [reduced(seed)[1:] for seed in SEEDS]
    assert any((delivered > produced).any() for produced, delivered in pairs)
