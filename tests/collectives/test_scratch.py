"""Memory for what arrives: kept warm up to a bound."""

from typing import Any

import numpy as np

from dlcpd.collectives.scratch import MAX_KEPT, SMALL, ScratchPool
from dlcpd.core.wire.datagram import Bytes


def whole(buffer: Bytes) -> Bytes:
    """The buffer that it is a part of."""
    base: Any = buffer.base
    return buffer if base is None else base


def test_so_many_buffers_are_kept_and_the_rest_goes_back_to_the_system() -> None:
    pool = ScratchPool(2 * SMALL)
    taken = [pool.take(SMALL + 1) for _ in range(3 * MAX_KEPT)]
    for buffer in taken:
        pool.give(buffer)
    known = {id(buffer.base) for buffer in taken}
    again = [pool.take(SMALL + 1) for _ in range(3 * MAX_KEPT)]
    kept = sum(id(buffer.base) in known for buffer in again)
    assert kept == MAX_KEPT * 2 * SMALL // len(whole(taken[0]))


def test_small_and_foreign_buffers_are_not_kept() -> None:
    pool = ScratchPool(2 * SMALL)
    pool.give(pool.take(SMALL))
    foreign = np.zeros(3 * SMALL, np.uint8)
    pool.give(foreign)
    assert pool.take(2 * SMALL).base is not foreign


def test_buffers_serve_sizes_that_are_about_theirs() -> None:
    pool = ScratchPool(32 * SMALL)
    buffer = whole(pool.take(7 * SMALL + 100))
    assert len(buffer) <= 9 / 8 * (7 * SMALL + 100)
    pool.give(buffer)
    assert pool.take(5 * SMALL).base is not buffer
    assert pool.take(7 * SMALL + 5000).base is buffer
    assert len(whole(pool.take(32 * SMALL))) == 32 * SMALL


def test_what_was_unused_longest_makes_room() -> None:
    pool = ScratchPool(2 * SMALL)
    old = [pool.take(SMALL + 1) for _ in range(MAX_KEPT)]
    new = [pool.take(2 * SMALL) for _ in range(MAX_KEPT)]
    for buffer in (*old, *new):
        pool.give(buffer)
    known = {id(whole(buffer)) for buffer in (*old, *new)}
    assert all(id(pool.take(2 * SMALL).base) in known for _ in range(MAX_KEPT))
    assert id(pool.take(SMALL + 1).base) not in known
