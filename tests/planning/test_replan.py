"""The rule for new plans, in virtual time."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning.replan import (
    CALM,
    LEAST_PAUSE,
    MOST_PAUSE,
    PROBE_EVERY,
    WINDOW,
    Decision,
    ReplanRule,
)

PLANNED = {"a": 1000, "b": 1000}


def _rule() -> ReplanRule:
    return ReplanRule(dict(PLANNED))


def _run(rule: ReplanRule, rate: Callable[[float], float], seconds: float) -> list[float]:
    """Times of new plans while link `a` has the average of `rate` in each window; all help."""
    plans, steps = [], 40
    for number in range(int(seconds / WINDOW)):
        start = number * WINDOW
        mean = sum(rate(start + WINDOW * (s + 0.5) / steps) for s in range(steps)) / steps
        now = start + WINDOW
        wanted = rule.window({"a": round(mean), "b": 1000}, now)
        if wanted and rule.decide(wanted, 1.5, now) is Decision.ADOPT:
            rule.adopted(wanted, now)
            plans.append(now)
    return plans


def test_a_rate_that_stays_changed_gives_one_plan_within_five_seconds() -> None:
    rule = _rule()
    assert _run(rule, lambda at: 400.0 if at > 0 else 1000.0, 60) == [4.0]
    assert rule.planned == {"a": 400, "b": 1000}


@pytest.mark.parametrize("factor", [0.76, 1.0, 1.24])
def test_a_rate_off_by_less_than_25_percent_gives_none(factor: float) -> None:
    assert _run(_rule(), lambda _: 1000 * factor, 60) == []


@pytest.mark.parametrize("factor", [0.75, 1.25])
def test_a_rate_off_by_25_percent_gives_one(factor: float) -> None:
    assert _run(_rule(), lambda _: 1000 * factor, 60) == [4.0]


def test_one_window_is_not_enough_and_the_links_without_traffic_keep_their_rate() -> None:
    rule = _rule()
    assert rule.window({"a": 100}, 2.0) == {}
    assert rule.window({}, 4.0) == {}
    assert rule.window({"a": 100}, 6.0) == {}
    assert rule.window({"a": 110}, 8.0) == {"a": 105, "b": 1000}


@given(
    low=st.floats(0.02, 0.99),
    phase=st.floats(0, 6),
    period=st.sampled_from([3.0, 6.0]),
)
def test_a_link_that_flaps_every_3_seconds_gives_at_most_one_plan_in_30_seconds(
    low: float, phase: float, period: float
) -> None:
    """Also where 3 s are the whole period."""
    plans = _run(
        _rule(), lambda at: 1000 * low if (at + phase) % period < period / 2 else 1000.0, 120
    )
    assert all(later - at >= 30 for at, later in pairwise(plans)), plans


@given(st.lists(st.floats(0.05, 2), min_size=10, max_size=60))
def test_plans_are_at_least_ten_seconds_apart(factors: list[float]) -> None:
    plans = _run(_rule(), lambda at: 1000 * factors[int(at / 7) % len(factors)], 400)
    assert all(later - at >= LEAST_PAUSE for at, later in pairwise(plans)), plans


def test_a_plan_that_is_undone_doubles_the_pause() -> None:
    """The link is slow and fast for a minute each: each plan undoes the former."""
    rule = _rule()
    plans = _run(rule, lambda at: 300.0 if at % 100 < 50 else 1000.0, 2000)
    pauses = [later - at for at, later in pairwise(plans)]
    assert rule.pause == MOST_PAUSE
    assert pauses[0] < 60 and pauses[-1] >= 300
    rule.adopted({"a": 600, "b": 1000}, plans[-1] + CALM * MOST_PAUSE + 1)
    assert rule.pause == LEAST_PAUSE


def test_a_plan_that_undoes_the_last_waits_for_two_pauses() -> None:
    rule = _rule()
    rule.adopted({"a": 300, "b": 1000}, 0.0)
    assert rule.decide(PLANNED, 2.0, 2 * LEAST_PAUSE - 0.1) is Decision.TOO_SOON
    assert rule.decide({"a": 300, "b": 300}, 2.0, LEAST_PAUSE) is Decision.ADOPT
    assert rule.decide(PLANNED, 2.0, 2 * LEAST_PAUSE) is Decision.ADOPT


def test_a_small_gain_gives_no_plan() -> None:
    rule = _rule()
    assert rule.decide({"a": 500, "b": 1000}, 1.09, 5.0) is Decision.SMALL_GAIN
    assert rule.decide({"a": 500, "b": 1000}, 1.10, 5.0) is Decision.ADOPT


def test_a_rank_that_is_gone_gives_a_plan_without_its_links_whatever_the_gain() -> None:
    rule = ReplanRule(PLANNED)
    rule.gone(["b"])
    assert PLANNED == {"a": 1000, "b": 1000}
    assert rule.window({"a": 1000, "b": 1000}, 2.0) == {"a": 1000}
    assert rule.decide({"a": 1000}, 1.0, 2.0) is Decision.ADOPT
    rule.adopted({"a": 1000}, 2.0)
    assert rule.window({"a": 1000}, 20.0) == {}


def test_a_gone_rank_waits_for_the_pause_too() -> None:
    rule = _rule()
    rule.adopted(PLANNED, 1.0)
    rule.gone(["b"])
    assert rule.window({}, 10.9) == {} and rule.window({}, 11.0) == {"a": 1000}
    assert rule.decide({"a": 1000}, 2.0, 10.9) is Decision.TOO_SOON


def test_links_without_traffic_are_probed_once_a_minute() -> None:
    rule = _rule()
    asked = []
    for tick in range(120):
        now = 2.0 * tick
        rule.window({"a": 1000}, now)
        asked += [(now, link) for link in rule.to_probe(now)]
    assert {link for _, link in asked} == {"b"}
    assert [at for at, _ in asked] == [PROBE_EVERY * n for n in (1, 2, 3)]
