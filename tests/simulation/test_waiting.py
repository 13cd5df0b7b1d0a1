"""The measurement of longer waiting: it delays the right timers, and knows lost from late."""

import pytest

from dlcp_lab.simulation.network import SimLink
from dlcp_lab.simulation.waiting import CONTRIBUTION, ROUND_TRIP, Patience, PatientNetwork, measure
from dlcpd.core.session.outbox import ANSWER_DELAY
from dlcpd.core.timers import Timer
from dlcpd.core.wire.header import Key

SHORT = 2e-4  # seconds


@pytest.mark.parametrize(
    ("timer", "transfer", "wait", "longer"),
    [
        (Timer.VERDICT, CONTRIBUTION, SHORT, True),
        (Timer.VERDICT, CONTRIBUTION + 1, SHORT, False),
        (Timer.VERDICT, CONTRIBUTION, ANSWER_DELAY, False),
        (Timer.VERDICT, CONTRIBUTION, 1.5 * ROUND_TRIP, False),
        (Timer.END, CONTRIBUTION, SHORT, False),
    ],
)
def test_only_the_stop_rule_for_contributions_waits_twice(
    timer: Timer, transfer: int, wait: float, longer: bool
) -> None:
    net = PatientNetwork(2, SimLink(), times=2.0)
    table = net.endpoints[0].timers
    assert isinstance(table, Patience)
    table.set(("a flow", timer, Key(0, 1, transfer)), net.now + wait)
    at = table.next_timeout()
    assert at == pytest.approx(net.now + (2 * wait if longer else wait), abs=1e-9)


def test_without_jitter_each_waived_segment_was_lost() -> None:
    found = measure(jitter=0.0, times=1.0, seed=1, operations=3)
    assert found.waived > 5
    assert found.late == 0


def test_with_jitter_some_were_late() -> None:
    found = [measure(jitter=20e-3, times=1.0, seed=seed, operations=5) for seed in range(2)]
    assert sum(each.late for each in found) > 0
    assert all(each.late < each.waived for each in found)
