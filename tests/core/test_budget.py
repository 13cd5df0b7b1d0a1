"""What a chunk may go without: part by part, never the exempt, the lightest first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.transfer.budget import Budget

FRONT, BACK = 1 << 32 | 100_000, 3 << 32 | 50_000  # class and bound: 10 % and 5 %
SEGMENTS = 100


def budget(exempt: list[int] | None = None) -> Budget:
    """60 segments of FRONT, of which 6 may be missing; 40 of BACK, of which 2 may."""
    keys = np.array([FRONT] * 60 + [BACK] * 40)
    bits = np.zeros(SEGMENTS, bool)
    bits[exempt or []] = True
    made = Budget.new(keys, bits if exempt else None)
    assert made is not None
    return made


def missing(*segments: int) -> np.ndarray:
    bits = np.zeros(SEGMENTS, bool)
    bits[list(segments)] = True
    return bits


@pytest.mark.parametrize(
    ("segments", "covered"),
    [
        ([], True),
        (range(6), True),
        (range(7), False),
        ([60, 61], True),
        ([60, 61, 62], False),
        ([*range(6), 60, 61], True),
        ([*range(5), 60, 61, 62], False),  # one part's allowance does not pay for another
        ([59], False),
        ([1, 59], False),
    ],
    ids=str,
)
def test_each_part_has_its_own_allowance(segments: list[int], covered: bool) -> None:
    assert budget(exempt=[59]).covers(missing(*segments)) is covered


def test_where_nothing_may_be_missing_there_is_no_budget() -> None:
    assert Budget.new(np.array([4 << 32 | 9_000] * 100), None) is None  # 0.9 of one segment
    assert Budget.new(np.array([4 << 32] * 100), None) is None
    one = Budget.new(np.array([4 << 32 | 10_000] * 100), None)
    assert one is not None
    assert one.allowed.tolist() == [1]


def test_the_lightest_are_spared() -> None:
    weight = np.arange(SEGMENTS, dtype=np.float64)[::-1].copy()
    lacking = np.array([3, 10, 20, 30, 40, 50, 58, 59, 97, 98, 99])
    spared = budget(exempt=[59, 99]).spare(lacking, weight)
    assert sorted(spared) == [10, 20, 30, 40, 50, 58, 97, 98]


@given(
    st.lists(st.integers(0, SEGMENTS - 1), unique=True),
    st.lists(st.integers(0, SEGMENTS - 1), max_size=5),
    st.booleans(),
)
def test_what_is_spared_is_covered_and_no_more_could_be(
    lacking: list[int], exempt: list[int], weighed: bool
) -> None:
    may = budget(exempt=exempt)
    weight = np.random.default_rng(0).random(SEGMENTS) if weighed else None
    spared = may.spare(np.array(sorted(lacking), np.intp), weight)
    assert may.covers(missing(*spared.tolist()))
    for other in set(lacking) - set(spared.tolist()):
        assert not may.covers(missing(*spared.tolist(), other))
