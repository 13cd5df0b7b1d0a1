"""Which tensors go where."""

import pytest

from dlcp_client.ps.layout import PIECE, ShardLayout, ShardTensor, shard_of
from dlcpd.contract.errors import BadConfig


def test_shards_are_of_about_one_size_and_tensors_whole() -> None:
    sizes = [100, 7, 50, 50, 3, 90]
    chosen = shard_of(sizes, 2)
    filled = [sum(n for n, at in zip(sizes, chosen, strict=True) if at == s) for s in (0, 1)]
    assert sum(filled) == sum(sizes) and abs(filled[0] - filled[1]) <= max(sizes)
    assert filled == [150, 150]
    assert shard_of(sizes, 1) == [0] * 6


def test_a_shard_that_would_have_nothing_is_refused() -> None:
    with pytest.raises(BadConfig, match="fewer shards"):
        shard_of([5], 2)
    with pytest.raises(BadConfig, match="more shards"):
        shard_of([1 << 32], 1)


def test_pieces_and_their_exempt_ranges() -> None:
    layout = ShardLayout(
        (ShardTensor(PIECE - 1, 0), ShardTensor(2, 0, exempt=True), ShardTensor(5, 1))
    )
    assert layout.pieces == ((0, PIECE), (PIECE, PIECE + 6))
    assert layout.exempt(layout.pieces[0]) == [(4 * (PIECE - 1), 4 * PIECE)]
    assert layout.exempt(layout.pieces[1]) == [(0, 4)]
    assert ShardLayout.of(layout.rows(), size=PIECE + 6, groups=2) == layout
