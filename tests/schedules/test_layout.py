"""Shards and chunks: they cover the tensor once, in order, aligned, however it falls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.schedules.layout import ALIGNMENT, layout


@given(st.integers(1, 20_000), st.integers(2, 16), st.integers(1, 30))
def test_chunks_cover_the_tensor_once_and_in_order(size: int, world: int, units: int) -> None:
    chunk_size = units * ALIGNMENT
    chunks = layout(size, world, chunk_size).chunks
    assert [c.index for c in chunks] == list(range(len(chunks)))
    at = 0
    for chunk in chunks:
        assert chunk.start == at
        assert 0 < chunk.size <= chunk_size
        assert chunk.start % ALIGNMENT == 0
        at += chunk.size
    assert at == size
    owners = [c.owner for c in chunks]
    assert owners == sorted(owners)
    assert set(owners) <= set(range(world))


@given(st.integers(1, 20_000), st.integers(2, 16))
def test_shards_are_equal_but_for_the_last(size: int, world: int) -> None:
    parts = layout(size, world, 1 << 30)
    sizes = [sum(c.size for c in parts.owned_by(rank)) for rank in range(world)]
    used = [s for s in sizes if s]
    assert sizes[: len(used)] == used
    assert len(set(used[:-1])) <= 1
    assert used[-1] <= used[0]


@pytest.mark.parametrize(("size", "owners"), [(1, 1), (64, 1), (65, 2), (448, 7), (449, 4)])
def test_fewer_bytes_than_shards_leave_ranks_without_one(size: int, owners: int) -> None:
    assert len({c.owner for c in layout(size, 7, 1024).chunks}) == owners


def test_a_shard_is_cut_into_chunks() -> None:
    chunks = layout(1000, 2, 256).chunks
    assert [(c.owner, c.start, c.size) for c in chunks] == [
        (0, 0, 256),
        (0, 256, 256),
        (1, 512, 256),
        (1, 768, 232),
    ]
