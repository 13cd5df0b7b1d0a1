"""Rates of links from what hosts tell of theirs."""

import pytest

from dlcpd.planning.passive import (
    LEAST_PART,
    MOST_SLOW,
    LinkRates,
    by_rack,
    levelled,
    measured,
    planned,
    with_rates,
)
from dlcpd.schedules.network import HostCapacity

HOSTS = [("a", HostCapacity((60, 20), (100,) * 2)), ("b", HostCapacity((90,), (90,)))]
PLAN = {f"{host} {way}": 1000 for host in "abcd" for way in ("out", "in")}
WAITING = LinkRates(400, 0, 10)  # for a slower link
SLOW = LinkRates(210, 200, 80)


def test_one_slow_link_shows_and_those_that_wait_for_it_do_not() -> None:
    told = dict.fromkeys(PLAN, WAITING) | {"a out": SLOW, "a in": SLOW}
    assert measured(told, PLAN) == {"a out": 200, "a in": 200}


@pytest.mark.parametrize("most", [751, 900, 1100])
def test_a_link_that_carries_what_is_planned_is_not_slow(most: int) -> None:
    """However long it was the limit."""
    assert measured({"a in": LinkRates(most, 500, 100)}, PLAN) == {"a in": levelled(most, PLAN)}
    assert levelled(most, PLAN) > 750


@pytest.mark.parametrize("part", [0, LEAST_PART - 1])
def test_a_link_that_was_hardly_the_limit_says_nothing(part: int) -> None:
    assert measured({"a in": SLOW._replace(part=part)}, PLAN) == {}


def test_a_direction_that_was_the_limit_for_less_time_than_the_other_says_nothing() -> None:
    told = {"a out": SLOW, "a in": SLOW._replace(part=47)}
    assert measured(told, PLAN) == {"a out": 200}
    assert measured(told | {"a in": SLOW._replace(part=48)}, PLAN) == {"a out": 200, "a in": 200}


@pytest.mark.parametrize("most", [500, 990])
def test_if_another_host_is_the_limit_for_half_as_long_it_is_the_cpus(most: int) -> None:
    """A slow link has the others wait for it."""
    told = {"a in": SLOW, "b out": LinkRates(most, 300, 39)}
    assert measured(told, PLAN)["a in"] == 200
    assert "a in" not in measured(told | {"b out": LinkRates(most, 300, 40)}, PLAN)


def test_if_many_links_are_slow_it_is_the_cpus() -> None:
    links = list(PLAN)
    assert len(measured(dict.fromkeys(links[:2], SLOW), PLAN)) == 2
    assert measured(dict.fromkeys(links[: 8 // MOST_SLOW + 1], SLOW), PLAN) == {}


def test_a_link_whose_data_may_wait_at_their_other_ends_says_nothing() -> None:
    plan = PLAN | {f"{host} in": 499 for host in "bcd"}
    assert measured({"a out": SLOW}, plan) == {}
    plan["d in"] = 502
    assert measured({"a out": SLOW}, plan) == {"a out": 200}


def test_a_faster_link_has_at_least_its_best_rate_and_no_more_than_the_fastest() -> None:
    plan = PLAN | {"a in": 200}
    assert measured({"a in": LinkRates(500, 0, 0)}, plan) == {"a in": 500}
    assert measured({"a in": LinkRates(3000, 0, 0)}, plan) == {"a in": 1000}


def test_rates_that_noise_cannot_tell_from_the_fastest_are_that() -> None:
    assert [levelled(rate, PLAN) for rate in (799, 800, 1300)] == [799, 1000, 1000]


def test_hosts_are_compared_on_their_switch_if_there_are_three() -> None:
    hosts = [
        (name, HostCapacity((9,), (9,), rack)) for name, rack in zip("abcde", "xyxyx", strict=True)
    ]
    assert [[host for host, _ in members] for members in by_rack(hosts)] == [["a", "c", "e"]]
    assert by_rack(HOSTS) == []


def test_new_rates_keep_the_proportions_of_rails() -> None:
    rates = planned(HOSTS)
    assert rates == {"a out": 80, "a in": 200, "b out": 90, "b in": 90}
    assert with_rates(HOSTS, rates) == HOSTS
    changed = dict(with_rates(HOSTS, rates | {"a out": 40, "b in": 1}))
    assert (changed["a"].out_bps, changed["b"].in_bps) == ((30, 10), (1,))


def test_new_rates_keep_racks_and_hosts_without_rates() -> None:
    hosts = [(name, told._replace(rack="r", up_bps=7, down_bps=8)) for name, told in HOSTS]
    changed = with_rates(hosts, {"b out": 45, "b in": 45})
    b = HostCapacity((45,), (45,), "r", 7, 8)
    assert changed == [hosts[0], ("b", b)]
