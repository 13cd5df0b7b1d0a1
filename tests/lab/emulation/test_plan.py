"""Plans are checked; names, addresses and routes follow from them. No root needed."""

import ipaddress
from itertools import pairwise
from typing import Any

import pytest

from dlcp_lab.emulation import FabricError, Plan
from dlcp_lab.emulation.condition import Condition, initial
from dlcp_lab.emulation.plan import bits_per_second
from dlcp_lab.emulation.topology import (
    chosen,
    directions,
    host_address,
    identity,
    links,
    nodes,
    routes,
)

LEAF_SPINE = Plan(hosts=4, leaves=2, spines=2)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hosts": 0}, r"hosts 0 is out of range: use 1\.\.250"),
        ({"hosts": 251}, "hosts 251"),
        ({"rails": 9}, r"rails 9 is out of range: use 1\.\.8"),
        ({"leaves": 3}, r"leaves 3 is out of range: use 1\.\.2"),
        ({"leaves": 2}, "spines 0 is out of range: use 1"),
        ({"spines": 1}, r"spines 1 is out of range: use 0\.\.0"),
        ({"hosts": 40, "leaves": 20, "spines": 13}, r"leaves \* spines 260"),
        ({"host_rate": "fast"}, "'fast' is not a rate; write it like"),
        ({"host_rate": "1 gbit"}, "has a space, which tc refuses"),
        ({"spine_rate": "0mbit"}, "rate '0mbit'"),
        ({"buffer_bytes": 1500}, "buffer_bytes 1500"),
        ({"ecn_bytes": 1 << 20}, "ecn_bytes"),
        ({"loss": -0.1}, "loss -0.1"),
        ({"loss": 1.0}, "loss 1.0 is out of range: use 0 <= loss < 1"),
        ({"burst_length": 0.5}, "burst_length 0.5"),
        ({"seed": 0}, "seed 0"),
        ({"bare": True, "classes": True}, "bare: a bare fabric has no classes"),
        ({"bare": True, "ecn_bytes": 9000}, "bare: a bare fabric has no classes"),
        ({"bare": True, "limits": (("h0-l0", "1mbit"),)}, "limits: a bare fabric has no rates"),
        ({"place": (0,)}, "place has 1 hosts, the fabric 2"),
        ({"place": (0, 1)}, r"place of host 1: 1 is out of range: use 0\.\.0"),
        ({"hosts": 3, "leaves": 3, "spines": 1, "place": (0, 0, 2)}, "leaf 1 has no host"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(FabricError, match=says):
        Plan(**wrong)


@pytest.mark.parametrize(
    ("rate", "bits"), [("500bit", 500), ("8kbit", 8000), ("10mbit", 10**7), ("2.5gbit", 25 * 10**8)]
)
def test_a_rate_is_a_number_of_bits(rate: str, bits: int) -> None:
    assert bits_per_second(rate) == bits


@pytest.mark.parametrize(
    "plan",
    [Plan(), LEAF_SPINE, Plan(hosts=250, leaves=16, spines=16), Plan(5, 3, 2, rails=8)],
)
def test_addresses_and_devices_are_unique_and_fit(plan: Plan) -> None:
    ports = [port for link in links(plan) for port in (link.low, link.high)]
    addresses = [port.address.partition("/")[0] for port in ports]
    addresses += [identity(plan, node) for node in nodes(plan) if node[0] != "h"]
    assert len(set(addresses)) == len(addresses)
    assert all(ipaddress.ip_address(address) for address in addresses)
    assert len({(port.node, port.device) for port in ports}) == len(ports)
    assert all(len(port.device) <= 15 for port in ports)  # IFNAMSIZ


def test_both_ends_of_a_link_are_in_one_subnet() -> None:
    for link in links(Plan(hosts=6, leaves=3, spines=4, rails=2)):
        ends = [ipaddress.ip_interface(port.address).network for port in (link.low, link.high)]
        assert ends[0] == ends[1]


def test_neighbours_hang_on_different_leaves() -> None:
    names = [way.link for way in directions(LEAF_SPINE).values() if way.from_host]
    assert names == ["h0-l0", "h1-l1", "h2-l0", "h3-l1"]


def test_racks_may_have_any_hosts() -> None:
    plan = Plan(hosts=4, leaves=2, spines=1, rails=2, place=(0, 1, 1, 1))
    names = [way.link for way in directions(plan).values() if way.from_host]
    assert names == [*("h0-l0", "h1-l1", "h2-l1", "h3-l1"), *("h0-l2", "h1-l3", "h2-l3", "h3-l3")]
    assert [route.subnet for route in routes(plan, "l1")] == ["10.77.0.0/24"]


def test_links_have_rates_of_their_own() -> None:
    limits = (("h0-l0", "25mbit"), ("l0-s0", "50mbit"), ("s0:l0", "40mbit"))
    plan = Plan(hosts=3, leaves=2, spines=1, host_rate="100mbit", limits=limits)
    rates = {name: condition.rate for name, condition in initial(plan).items()}
    assert rates["h0:l0"] == rates["l0:h0"] == "25mbit"
    assert rates["h1:l1"] == "" and rates["l1:h1"] == "100mbit"
    assert (rates["l0:s0"], rates["s0:l0"], rates["l1:s0"]) == ("50mbit", "40mbit", "1gbit")
    for link, says in (("l7-s0", "no link 'l7-s0'"), ("", "'fast' is not a rate")):
        with pytest.raises(FabricError, match=says):
            initial(Plan(limits=((link, "fast"),)))


def test_a_leaf_reaches_other_leaves_over_every_spine() -> None:
    found = routes(LEAF_SPINE, "l0")
    assert {route.subnet: [device for _, device in route.ways] for route in found} == {
        "10.77.1.0/24": ["s0", "s1"],
        "10.77.3.0/24": ["s0", "s1"],
    }


@pytest.mark.parametrize("down", ["l0-s0", "l1-s0"])
def test_a_spine_is_avoided_when_either_of_its_links_is_down(down: str) -> None:
    for route in routes(LEAF_SPINE, "l0", {down}):
        assert [device for _, device in route.ways] == ["s1"]


def test_without_a_way_there_is_none() -> None:
    assert all(not route.ways for route in routes(LEAF_SPINE, "l0", {"l0-s0", "l1-s1"}))
    spine = {route.subnet: route.ways for route in routes(LEAF_SPINE, "s0", {"l0-s0"})}
    assert not spine["10.77.0.0/24"]
    assert spine["10.77.1.0/24"]


def test_rails_share_nothing_but_hosts() -> None:
    plan = Plan(hosts=4, leaves=2, spines=2, rails=2)
    for low, high in (link.split("-") for link in {way.link for way in directions(plan).values()}):
        if low[0] == "l":
            assert int(low[1:]) // 2 == int(high[1:]) // 2
    assert host_address(plan, 3, rail=1) == "10.78.3.2"
    with pytest.raises(FabricError, match=r"rail 2: this fabric has rails 0\.\.1"):
        host_address(plan, 0, rail=2)


def test_a_name_means_a_link_a_direction_or_everything() -> None:
    assert [way.name for way in chosen(LEAF_SPINE, "l0-s1")] == ["l0:s1", "s1:l0"]
    assert [way.name for way in chosen(LEAF_SPINE, "l0:h2")] == ["l0:h2"]
    assert len(chosen(LEAF_SPINE, "")) == 2 * len(links(LEAF_SPINE))
    with pytest.raises(FabricError, match="the fabric has no link 's1-l0': use one of h0-l0"):
        chosen(LEAF_SPINE, "s1-l0")


def test_only_switch_outputs_have_the_planned_rate_and_loss() -> None:
    plan = Plan(4, 2, 2, host_rate="100mbit", spine_rate="40mbit", loss=0.01)
    made = initial(plan)
    assert made["h0:l0"] == Condition()
    assert (made["l0:h0"].rate, made["l0:s0"].rate, made["s0:l0"].rate) == (
        "100mbit",
        "40mbit",
        "40mbit",
    )
    assert {made[name].loss for name in ("l0:h0", "l0:s0", "s0:l0")} == {0.01}


def test_link_pairs_fill_their_room_without_a_gap() -> None:
    plan = Plan(hosts=16, leaves=16, spines=16)
    lows = [int(ipaddress.ip_interface(link.low.address).ip) for link in links(plan)[16:]]
    assert {high - low for low, high in pairwise(lows)} == {2}
