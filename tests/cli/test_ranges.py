"""Numbers as people write them, and as the configuration reads them."""

from hypothesis import given
from hypothesis import strategies as st

from dlcpd.cli.ranges import ranges
from dlcpd.daemon.config.values import cpu_numbers


def test_runs_are_joined() -> None:
    assert ranges([8, 3, 2, 4, 3]) == "2-4,8"
    assert ranges([]) == ""


@given(st.sets(st.integers(0, 99), min_size=1))
def test_they_are_read_again(numbers: set[int]) -> None:
    assert set(cpu_numbers(ranges(numbers))) == numbers
