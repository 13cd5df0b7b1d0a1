import numpy as np
import pytest

from dlcp_lab.simulation.losses import Losses

EACH = 12e-6  # seconds between two datagrams


def mask(losses: Losses, count: int, most: int) -> np.ndarray:
    parts = []
    for at in range(0, count, most):
        n = min(most, count - at)
        kept = losses.keep(n, at * EACH, EACH)
        parts.append(np.ones(n, bool) if kept is None else kept)
    return np.concatenate(parts)


@pytest.mark.parametrize("burst", [1, 8, 64])
@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.05])
def test_the_fraction_and_the_bursts_are_those_asked_for(fraction: float, burst: float) -> None:
    losses = Losses(fraction, burst, "seed")
    kept = mask(losses, 4_000_000, 1000)
    lost = int(np.count_nonzero(~kept))
    assert losses.lost == lost
    assert lost / len(kept) == pytest.approx(fraction, rel=0.15)
    runs = int(np.count_nonzero(~kept[1:] & kept[:-1]))
    longest = burst / (1 - fraction)  # one burst may follow another at once
    assert burst * 0.8 < lost / runs < longest * 1.2


def test_the_same_datagrams_are_lost_however_many_travel_together() -> None:
    first = mask(Losses(0.05, 4, "seed"), 10_000, 1)
    assert not first.all()
    for most in (7, 64, 10_000):
        assert (mask(Losses(0.05, 4, "seed"), 10_000, most) == first).all()


def test_a_burst_ends_with_time_also_for_a_sender_that_waits() -> None:
    losses = Losses(0.05, 64, "seed")
    kept = [losses.keep(1, 0.2 * number, EACH) for number in range(10_000)]
    lost = [each is not None and not each[0] for each in kept]
    assert 0 < sum(lost) < 10_000 * 0.05 / 32  # one of a burst
    assert max(len(run) for run in "".join(".x"[each] for each in lost).split(".")) <= 2


def test_a_wire_without_loss_and_another_seed() -> None:
    assert Losses(0.0, 1, "seed").keep(1 << 40) is None
    one, other = (mask(Losses(0.1, 1, seed), 1000, 10) for seed in ("a", "b"))
    assert (one != other).any()


@pytest.mark.parametrize(("fraction", "burst"), [(-0.1, 1.0), (1.0, 1.0), (0.1, 0.5)])
def test_impossible_losses_are_refused(fraction: float, burst: float) -> None:
    with pytest.raises(ValueError, match="cannot lose"):
        Losses(fraction, burst, "seed")
