"""Totals of a session: what they count, and how a bound that is used up shows."""

import pytest

from dlcpd.core.session.events import Stats
from dlcpd.core.session.totals import BUCKETS, Totals


def test_every_count_adds_up_and_every_time_has_its_bucket() -> None:
    totals = Totals()
    totals.complete(Stats(10, 1, 2, 3, 4, 0.25, 5), 0.0005)
    totals.complete(Stats(20, 2, 0, 0, 0, 0.0, 0), 1.5)
    totals.complete(Stats(1), 1e6)
    report = totals.report()
    assert report["took"] == [1, *[0] * 10, 1, 0, 0, 0, 0, 1] and BUCKETS[11] == 2.0
    assert report["seconds"] == pytest.approx(1e6 + 1.5005)
    names = ("sent", "retransmitted", "waived", "reapplied", "lost", "energy", "allowed")
    assert [report[name] for name in names] == [31, 3, 2, 3, 4, 0.25, 5]


def test_the_used_part_of_the_bound_follows_bounded_operations_only() -> None:
    totals = Totals()
    for _ in range(100):
        totals.complete(Stats(sent=100, waived=10, allowed=10), 0.1)
    assert totals.used == pytest.approx(1.0, abs=0.01)
    used = totals.used
    totals.complete(Stats(sent=100), 0.1)  # exact
    assert totals.used == used
    for _ in range(100):
        totals.complete(Stats(sent=100, allowed=10), 0.1)
    assert totals.used == pytest.approx(0.0, abs=0.01)
