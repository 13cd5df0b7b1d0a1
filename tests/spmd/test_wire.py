"""The bytes that `explain` says are those that a rank sends at most: on 3 ranks that in the middle,
which sends halos to both sides."""

from pathlib import Path

import pytest

from tests.c10d.worlds import over
from tests.spmd import wire_ranks

APART = 0.05  # headers of Gloo's messages


@pytest.mark.heavy
def test_predicted_bytes_are_those_on_the_wire(tmp_path: Path) -> None:
    ranks = over("gloo", wire_ranks.counted, 3, tmp_path)
    for name, (_, predicted) in ranks[0].items():
        sent = max(rank[name][0] for rank in ranks)
        assert abs(sent / predicted - 1) < APART, (name, sent, predicted)
