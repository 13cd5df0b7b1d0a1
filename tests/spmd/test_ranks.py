"""Divided models over real groups: trained, saved and loaded as on one device."""

from pathlib import Path

import pytest

from tests.c10d.worlds import over
from tests.spmd import ranks


@pytest.mark.parametrize(("backend", "size"), [("gloo", 3), ("gloo", 4), ("dlcp", 2)])
def test_groups_train_as_one_device(backend: str, size: int, tmp_path: Path) -> None:
    over(backend, ranks.everything, size, tmp_path)


def test_a_rank_that_dies_in_a_halo_exchange_is_named(tmp_path: Path) -> None:
    said = over("dlcp", ranks.dying, 3, tmp_path, dying=frozenset({1}))
    assert "PeerLost" in said[0] and "PeerLost" in said[2], said
    assert "rank 1" in said[0] and "rank 1" in said[2], said
