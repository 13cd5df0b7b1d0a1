"""Replica digests of an all-gather: every rank numbers the same bytes by the same pieces."""

import pytest

from dlcpd.schedules.builders.gather import all_gather
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.model import NOT_REPLICATED, Receive, Reduce, Span


def replicated(rank: int, sizes: tuple[int, ...]) -> dict[int, Span]:
    """Where each piece that counts as replicated lies."""
    found = {}
    for step in all_gather(rank, sizes).steps:
        if isinstance(step, Receive | Reduce) and step.piece != NOT_REPLICATED:
            assert step.piece not in found
            found[step.piece] = step.target if isinstance(step, Reduce) else step.span
    return found


@pytest.mark.parametrize(
    "sizes", [(64, 64), (LONGEST + 4, 8), (5, 0, 3 * LONGEST), (2 * LONGEST,) * 2], ids=str
)
def test_all_ranks_agree_on_what_is_replicated(sizes: tuple[int, ...]) -> None:
    pieces = [replicated(rank, sizes) for rank in range(len(sizes))]
    assert all(of_rank == pieces[0] for of_rank in pieces)
    assert sum(span.size for span in pieces[0].values()) == sum(sizes)
