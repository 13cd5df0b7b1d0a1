"""Times and memory beside Gloo: the table, and one run of the ranks."""

import pytest

from dlcp_lab.bench import group_life
from dlcp_lab.bench.group_life import HOW, TIMES, lines, measured

pytestmark = pytest.mark.processes


def test_a_row_for_each_time_and_training() -> None:
    runs = [{name: seconds for name in (*TIMES, "peak")} for seconds in (1.0, 2.0, 4.0)]
    times, memory = lines(dict.fromkeys(HOW, runs))
    assert [row.split()[-2:] for row in times.splitlines()[1:]] == [["2.000", "(1.000..4.000)"]] * 4
    assert [row.split() for row in memory.splitlines()[1:]] == [[how, "2", "1..4"] for how in HOW]


def test_ranks_say_what_they_saw() -> None:
    found = measured("dlcp")
    assert found.keys() == {*TIMES, "peak"}
    assert min(found.values()) > 0


def test_a_run_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_life, "RANK", "no_such_module")
    with pytest.raises(RuntimeError, match="gloo ended with status 1"):
        measured("gloo")
