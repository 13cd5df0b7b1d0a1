"""A scenario whose condition did not come about has no figure, and says why."""

import pytest

from dlcp_lab.report.statistic import NotMeasured
from dlcp_lab.scenarios.drop import overloaded
from dlcp_lab.scenarios.fairness import RATE, check_competition
from dlcp_lab.scenarios.job import Result
from dlcp_lab.scenarios.spray import in_a_cut


def lost(waived: int) -> Result:
    return Result([[1.0]], [], {"sent": 1000, "waived": waived}, [0.01])


def test_losses_without_overload_are_no_figure() -> None:
    assert overloaded(lost(450)).counts["waived"] == 450
    with pytest.raises(NotMeasured, match=r"0\.1% of the segments were lost, and 2:1 overload"):
        overloaded(lost(1))
    with pytest.raises(NotMeasured, match="no segment was sent"):
        overloaded(Result([[1.0]], [], {"sent": 0, "waived": 0}, []))


def test_a_share_of_a_link_with_room_is_no_figure() -> None:
    rounds, carried = [0.0, 1.0, 2.0, 3.0, 4.0], RATE / 8
    check_competition(rounds, [int(carried * at) for at in rounds])
    with pytest.raises(NotMeasured, match="the shared link carried 50% of its rate"):
        check_competition(rounds, [int(carried * at / 2) for at in rounds])
    with pytest.raises(NotMeasured, match="no round after the warm-up"):
        check_competition(rounds[:2], [0, 1])


def test_a_cut_that_no_packet_met_is_no_cut() -> None:
    assert in_a_cut([1.0, 5.0, 1.0, 1.0, 6.0, 1.0], [7, 0]) == [5.0]
    assert in_a_cut((), ()) == []
