"""The bytes that `explain` says are those that a rank sends at most: on 3 ranks that in the middle,
which sends halos to both sides. Operations in space send their halos and no more."""

from pathlib import Path

import pytest

from tests.c10d.worlds import over
from tests.spmd import halo_ranks, wire_ranks
from tests.spmd.halo_cases import RANKS

APART = 0.05  # headers of Gloo's messages


@pytest.mark.heavy
def test_predicted_bytes_are_those_on_the_wire(tmp_path: Path) -> None:
    ranks = over("gloo", wire_ranks.counted, 3, tmp_path)
    for name, (_, predicted) in ranks[0].items():
        sent = max(rank[name][0] for rank in ranks)
        assert abs(sent / predicted - 1) < APART, (name, sent, predicted)


@pytest.mark.heavy
def test_operations_send_their_halos_only(tmp_path: Path) -> None:
    """All of issue 39's list, widths 7, 17 and 22, forward and backward, on 3 ranks."""
    ranks = over("gloo", halo_ranks.counted, RANKS, tmp_path)
    for name, one in ranks[0].items():
        assert all(rank[name].is_equal for rank in ranks), name
        sent = sum(rank[name].sent for rank in ranks)
        assert one.halo <= sent <= (1 + APART) * one.halo, (name, sent, one.halo)
