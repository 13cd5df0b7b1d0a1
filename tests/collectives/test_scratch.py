"""Memory for what arrives: kept warm up to a bound."""

import numpy as np

from dlcpd.collectives.scratch import MAX_KEPT, SMALL, ScratchPool


def test_so_many_buffers_are_kept_and_the_rest_goes_back_to_the_system() -> None:
    pool = ScratchPool(2 * SMALL)
    taken = [pool.take(SMALL + 1) for _ in range(3 * MAX_KEPT)]
    for buffer in taken:
        pool.give(buffer)
    known = {id(buffer.base) for buffer in taken}
    again = [pool.take(SMALL + 1) for _ in range(3 * MAX_KEPT)]
    assert sum(id(buffer.base) in known for buffer in again) == MAX_KEPT


def test_small_and_foreign_buffers_are_not_kept() -> None:
    pool = ScratchPool(2 * SMALL)
    pool.give(pool.take(SMALL))
    foreign = np.zeros(3 * SMALL, np.uint8)
    pool.give(foreign)
    assert pool.take(2 * SMALL).base is not foreign
