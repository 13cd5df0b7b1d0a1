"""The rule for new plans, in virtual time."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning.replan import (
    CALM,
    FLAPS,
    LEAST_PAUSE,
    MOST_PAUSE,
    PROBE_EVERY,
    RESTORED_GAIN,
    TICK,
    WINDOW,
    Decision,
    ReplanRule,
)

PLANNED = {"a out": 1000, "b out": 1000}


def _rule() -> ReplanRule:
    return ReplanRule(dict(PLANNED))


def _run(
    rule: ReplanRule,
    rate: Callable[[float], float],
    seconds: float,
    *,
    unseen: Callable[[int], bool] = lambda number: False,
    phase: float = 0.0,
) -> list[float]:
    """Times of new plans while link `a` has the average of `rate` in each window; all help.
    `unseen`: whether a tick, by its number, has no rates."""
    plans, steps = [], 15
    for number in range(int(seconds / TICK)):
        now = (number + 1) * TICK + phase
        mean = sum(rate(now - WINDOW * (s + 0.5) / steps) for s in range(steps)) / steps
        wanted = rule.window({} if unseen(number) else {"a out": round(mean), "b out": 1000}, now)
        if wanted and rule.decide(wanted, 1.5, now) is Decision.ADOPT:
            rule.adopted(wanted, now)
            plans.append(now)
    return plans


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.25, 0.4])
def test_a_rate_that_stays_changed_gives_one_plan_in_two_windows_and_a_tick(phase: float) -> None:
    rule = _rule()
    [at] = _run(rule, lambda at: 400.0 if at > 10 else 1000.0, 60, phase=phase)
    assert abs(at - 10 - 2 * WINDOW) < TICK
    assert rule.planned == {"a out": pytest.approx(400, rel=0.05), "b out": 1000}


@pytest.mark.parametrize("every", [2, 3, 4])
def test_a_window_without_rates_delays_a_plan_by_two_ticks_at_most(every: int) -> None:
    """A message that comes late, or a tick in which no operation ran."""
    plans = _run(
        _rule(), lambda at: 400.0 if at > 10 else 1000.0, 60, unseen=lambda n: n % every == 0
    )
    assert plans == [pytest.approx(10 + 2 * WINDOW, abs=2 * TICK)]


@pytest.mark.parametrize("factor", [0.76, 1.0, 1.24])
def test_a_rate_off_by_less_than_25_percent_gives_none(factor: float) -> None:
    assert _run(_rule(), lambda _: 1000 * factor, 60) == []


@pytest.mark.parametrize("factor", [0.75, 1.25])
def test_a_rate_off_by_25_percent_gives_one(factor: float) -> None:
    assert _run(_rule(), lambda _: 1000 * factor, 60) == [WINDOW + TICK]


def test_two_windows_in_sequence_are_needed_and_links_without_traffic_keep_their_rate() -> None:
    rule = _rule()
    assert rule.window({"a out": 100}, 2.0) == {}
    assert rule.window({}, 3.0) == {}
    assert rule.window({"a out": 100}, 2 * WINDOW + 2.1) == {}  # the first one is too old
    assert rule.window({"a out": 104}, 3 * WINDOW + 2.0) == {}  # they have traffic in common
    assert rule.window({"a out": 110}, 3 * WINDOW + 2.1) == {"a out": 104, "b out": 1000}


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


@given(st.lists(st.tuples(st.floats(0.05, 2), st.floats(0.05, 2)), min_size=5, max_size=15))
def test_whatever_the_links_of_one_host_do_it_has_one_plan_in_30_seconds(
    factors: list[tuple[float, float]],
) -> None:
    plans, rule = list[float](), ReplanRule({"a out": 1000, "a in": 1000, "b out": 1000})
    for number in range(round(len(factors) * 8 / TICK)):
        now = number * TICK
        out, into = factors[int(now / 8)]
        wanted = rule.window({"a out": round(1000 * out), "a in": round(1000 * into)}, now)
        if wanted and rule.decide(wanted, 1.5, now) is Decision.ADOPT:
            rule.adopted(wanted, now)
            plans.append(now)
    assert all(later - at >= FLAPS * LEAST_PAUSE for at, later in pairwise(plans)), plans


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
    rule.adopted({"a out": 600, "b out": 1000}, plans[-1] + CALM * MOST_PAUSE + 1)
    assert rule.pause == LEAST_PAUSE


def test_a_plan_that_undoes_the_last_waits_for_three_pauses() -> None:
    rule = _rule()
    rule.adopted({"a out": 300, "b out": 1000}, 0.0)
    assert rule.decide(PLANNED, 2.0, FLAPS * LEAST_PAUSE - 0.1) is Decision.TOO_SOON
    assert rule.decide({"a out": 300, "b out": 300}, 2.0, LEAST_PAUSE) is Decision.ADOPT
    assert rule.decide({"a out": 100, "b out": 300}, 2.0, LEAST_PAUSE) is Decision.TOO_SOON
    assert rule.decide(PLANNED, 2.0, FLAPS * LEAST_PAUSE) is Decision.ADOPT


def test_a_small_gain_gives_no_plan() -> None:
    rule = _rule()
    assert rule.decide({"a out": 500, "b out": 1000}, 1.09, 5.0) is Decision.SMALL_GAIN
    assert rule.decide({"a out": 500, "b out": 1000}, 1.10, 5.0) is Decision.ADOPT


def test_a_host_that_is_gone_has_no_links_and_needs_no_plan() -> None:
    rule = ReplanRule(PLANNED)
    rule.gone(["b out"])
    assert PLANNED == {"a out": 1000, "b out": 1000}
    assert rule.window({"a out": 1000, "b out": 100}, 2.0) == {}
    assert rule.window({"a out": 400, "b out": 100}, 4.0) == {}
    assert rule.window({"a out": 400, "b out": 100}, 4.0 + WINDOW) == {"a out": 400}
    assert rule.to_probe(4.0) == [] and rule.to_probe(PROBE_EVERY + 6.0) == ["a out"]


def test_a_refused_offer_waits_for_a_pause_and_forgets_no_rates() -> None:
    rule = _rule()
    rule.adopted({"a out": 300, "b out": 1000}, 0.0)
    rule.refused(100.0)
    assert rule.planned["a out"] == 300
    assert rule.decide(PLANNED, 2.0, 100.0 + FLAPS * LEAST_PAUSE - 0.1) is Decision.TOO_SOON
    assert rule.decide(PLANNED, 2.0, 100.0 + FLAPS * LEAST_PAUSE) is Decision.ADOPT


def test_a_restored_link_gets_its_plan_back_for_less_gain() -> None:
    rule = _rule()
    rule.adopted({"a out": 300, "b out": 1000}, 0.0)
    assert rule.decide({"a out": 900, "b out": 1000}, RESTORED_GAIN, 60.0) is Decision.ADOPT
    assert rule.decide({"a out": 900, "b out": 1000}, 1.01, 60.0) is Decision.SMALL_GAIN
    assert rule.decide({"a out": 600, "b out": 1000}, RESTORED_GAIN, 60.0) is Decision.SMALL_GAIN


def test_links_without_traffic_are_probed_once_a_minute() -> None:
    rule = _rule()
    asked = []
    for tick in range(120):
        now = 2.0 * tick
        rule.window({"a out": 1000}, now)
        asked += [(now, link) for link in rule.to_probe(now)]
    assert {link for _, link in asked} == {"b out"}
    assert [at for at, _ in asked] == [PROBE_EVERY * n for n in (1, 2, 3)]


def _probing(rates: Callable[[float], int], seconds: float) -> tuple[list[float], list[float]]:
    """Times of probes of link `b`, which has no traffic and is planned to be slow, and of plans."""
    rule, probes, plans = ReplanRule({"a out": 1000, "b out": 200}), list[float](), list[float]()
    for number in range(int(seconds / TICK)):
        now = number * TICK
        wanted = rule.window({"a out": 1000}, now)
        if wanted and rule.decide(wanted, 1.5, now) is Decision.ADOPT:
            assert wanted == {"a out": 1000, "b out": rates(now)}
            rule.adopted(wanted, now)
            plans.append(now)
        if rule.to_probe(now):
            probes.append(now)
            rule.probed({"b out": rates(now)})
    return probes, plans


def test_a_restored_link_without_traffic_is_seen_by_two_probes() -> None:
    probes, plans = _probing(lambda now: 1000 if now > 90 else 200, 300)
    assert probes == [60.0, 120.0, 120.0 + TICK, 180.0 + TICK, 240.0 + TICK]
    assert plans == [121.0]


def test_a_link_that_is_fast_for_one_probe_only_stays_as_planned() -> None:
    probes, plans = _probing(lambda now: 1000 if now == 120 else 200, 200)
    assert probes == [60.0, 120.0, 120.0 + TICK, 180.0 + TICK] and not plans


@pytest.mark.parametrize("rate", [1, 200, 249])
def test_a_probe_that_is_slow_says_nothing(rate: int) -> None:
    """Other traffic may have been the limit."""
    assert _probing(lambda _: rate, 200) == ([60.0, 120.0, 180.0], [])


def test_traffic_outweighs_probes() -> None:
    rule = ReplanRule({"a out": 1000, "b out": 200})
    rule.probed({"b out": 1000})
    rule.probed({"b out": 900})
    assert rule.window({"a out": 1000}, 2.0) == {"a out": 1000, "b out": 900}
    assert rule.window({"a out": 1000, "b out": 200}, 2.5) == {}


def test_a_link_that_is_faster_than_planned_is_probed_at_once_and_then_ever_less_often() -> None:
    rule, probes = ReplanRule({"a out": 1000, "b out": 200}), list[float]()
    for number in range(int(400 / TICK)):
        now = number * TICK
        rule.window({"a out": 1000, "b out": 400}, now)
        if rule.to_probe(now):
            probes.append(now)
    pauses = [later - at for at, later in pairwise(probes)]
    assert probes[0] == 0.0 and pauses[:5] == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert set(pauses[5:]) == {PROBE_EVERY}


def test_one_probe_tells_how_fast_a_link_is_that_traffic_shows_to_be_faster() -> None:
    rule = ReplanRule({"a out": 1000, "b out": 200})
    assert rule.window({"a out": 1000, "b out": 400}, 1.0) == {}
    assert rule.to_probe(1.0) == ["b out"]
    rule.probed({"b out": 1000})
    assert rule.window({"a out": 1000, "b out": 500}, 1.5) == {"a out": 1000, "b out": 1000}
    assert rule.window({"a out": 1000, "b out": 210}, 2.0) == {}  # it is slow again


def test_a_link_that_is_nearly_as_fast_as_before_has_its_former_rate() -> None:
    rule = _rule()
    rule.adopted({"a out": 200, "b out": 1000}, 0.0)
    for at in (60.0, 60.0 + WINDOW):
        wanted = rule.window({"a out": 760, "b out": 1000}, at)
    assert wanted == PLANNED
