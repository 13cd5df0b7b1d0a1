"""What io has not added up segment by segment is added up at the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.collectives.segment_sum import SegmentSum, may_add

SEGMENT = 16


@given(added=st.lists(st.booleans(), min_size=6, max_size=6), divide_by=st.sampled_from([1, 2]))
def test_the_rest_is_added_up(added: list[bool], divide_by: int) -> None:
    size = 5 * SEGMENT + 4  # the last segment is short
    own, theirs = np.arange(size // 4, dtype=np.float32), np.ones(size // 4, np.float32)
    target = np.full(size // 4, -1, np.float32)
    sum_ = SegmentSum(
        target.view(np.uint8), [own.view(np.uint8), theirs.view(np.uint8)], 1, SEGMENT, divide_by
    )
    sum_.here[np.array(added)] = 2
    sum_.finish()
    by_io = np.repeat(added, SEGMENT // 4)[: len(target)]
    assert (target[by_io] == -1).all()
    assert (target[~by_io] == ((own + theirs) / divide_by)[~by_io]).all()


@pytest.mark.parametrize(
    ("dtype", "op", "size", "may"),
    [("float32", "sum", 1408, True), ("float32", "avg", 64, True), ("float32", "max", 64, False),
     ("bfloat16", "sum", 64, False), ("float64", "sum", 64, False), ("float32", "sum", 62, False)],
)  # fmt: skip
def test_what_io_may_add(dtype: str, op: str, size: int, may: bool) -> None:
    assert may_add(dtype, op, size) is may
