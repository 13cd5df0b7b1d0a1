"""Rates of links from the flows of a job."""

from typing import Any

import pytest

from dlcpd.planning.passive import (
    HEADERS,
    TICKS,
    FlowRates,
    between_hosts,
    by_rack,
    measured,
    planned,
    relative,
    with_rates,
)
from dlcpd.schedules.network import HostCapacity

HOSTS = [("a", HostCapacity((60, 20), (100,) * 2)), ("b", HostCapacity((90,), (90,)))]


def session(**peers: list[tuple[int, float]]) -> dict[str, Any]:
    """A report: busy packets and seconds of each path of a peer, in one traffic class."""
    return {
        "peers": [
            {
                "rank": int(name[1:]),
                "segment_size": 1000 - HEADERS,
                "paths": [
                    {"classes": {"front": {"busy_packets": packets, "busy_seconds": seconds}}}
                    for packets, seconds in paths
                ],
            }
            for name, paths in peers.items()
        ]
    }


def test_a_window_has_what_came_since_the_report_at_its_begin() -> None:
    meter = FlowRates()
    assert meter.window(session(r1=[(100, 0.5)], r2=[(50, 0.1)])) == {1: 1_600_000, 2: 4_000_000}
    for _ in range(TICKS - 1):
        assert meter.window(session(r1=[(300, 1.0)], r2=[(50, 0.1)]))[1] == 2_400_000
    assert meter.window(session(r1=[(300, 1.0)], r2=[(50, 0.1)])) == {1: 3_200_000}
    assert meter.window(session(r1=[(300, 1.0)], r2=[(50, 0.1)])) == {}


def test_paths_add_up_and_those_that_were_hardly_busy_do_not_count() -> None:
    assert FlowRates().window(session(r1=[(100, 1.0), (10, 0.1), (90, 0.01)])) == {1: 1_600_000}


def test_a_link_has_a_rate_if_all_its_flows_have() -> None:
    hosts = [(name, HostCapacity((9,), (9,))) for name in "abc"]
    flows = {("a", "b"): 3, ("a", "c"): 4, ("b", "c"): 5}
    assert measured(hosts, flows) == {"a out": 7, "c in": 9}
    assert measured(hosts[:1], {}) == {}


def test_flows_of_the_ranks_of_a_host_add_up() -> None:
    flows = {(0, 1): 99, (0, 2): 3, (1, 2): 4, (2, 0): 5}
    assert between_hosts(flows, {0: "a", 1: "a", 2: "b"}) == {("a", "b"): 7, ("b", "a"): 5}


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_a_factor_of_all_links_changes_nothing(factor: float) -> None:
    plan = {"a": 1000, "b": 1000, "c": 2000}
    assert relative({link: round(rate * factor) for link, rate in plan.items()}, plan) == plan


def test_one_slow_link_shows() -> None:
    plan = dict.fromkeys("abcd", 1000)
    assert relative({"a": 100, "b": 410, "c": 400, "d": 390}, plan)["a"] == pytest.approx(250, 0.1)
    assert relative({"a": 100, "b": 410}, plan) == {}  # half of them say nothing


def test_no_link_is_faster_than_the_fastest_of_the_plan() -> None:
    """Flows that are busy one after the other add up to more than their link carries."""
    plan = {"a": 1000, "b": 1000, "c": 500}
    assert relative({"a": 1000, "b": 2000, "c": 500}, plan) == plan


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
