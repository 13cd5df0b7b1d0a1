"""Paths over spines, and what becomes of them when links fail."""

import subprocess

import pytest

from dlcp_lab.emulation import Fabric, FabricError, Plan, fabric
from dlcp_lab.emulation.topology import identity
from tests.lab.emulation.probes import FIRST, PROBES, answers, arrivals, runs_of_missing

pytestmark = pytest.mark.netns

PORTS = 64
LEAF_SPINE = Plan(hosts=2, leaves=2, spines=2)


def arrived(net: Fabric) -> set[int]:
    """Source ports whose datagram came from host 0 to host 1."""
    return {port for port, _ in arrivals(net, 0, net.address(1), 1, ports=PORTS)}


def over_spine_1(plan: Plan) -> set[int]:
    """Source ports whose way leads over spine 1."""
    with fabric(plan) as net:
        net.cut("l0:s0", silent=True)
        return arrived(net)


def routes(net: Fabric, node: str) -> str:
    command = ("ip", "-n", net.namespace(node), "route")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def shown(net: Fabric, node: str, *words: str) -> str:
    command = ("tc", "-n", net.namespace(node), *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_flows_share_the_spines_and_a_seed_repeats_how() -> None:
    first = over_spine_1(LEAF_SPINE)
    assert PORTS // 5 < len(first) < PORTS * 4 // 5
    with fabric(LEAF_SPINE) as net:
        if not net.features()["ecmp"].startswith("seed"):
            pytest.skip("netns: this kernel has no fib_multipath_hash_seed")
    assert over_spine_1(LEAF_SPINE) == first
    assert over_spine_1(Plan(hosts=2, leaves=2, spines=2, seed=2)) != first


def test_each_switch_on_the_way_answers_for_itself() -> None:
    with fabric(LEAF_SPINE) as net:
        first, second, third = (answers(net, 0, net.address(1), hops) for hops in (1, 2, 3))
    assert first == ["10.77.0.1"] * PROBES  # none is left out
    assert set(second) == {identity(LEAF_SPINE, "s0"), identity(LEAF_SPINE, "s1")}
    assert len(second) == PROBES
    assert third == [identity(LEAF_SPINE, "l1")] * PROBES


def test_a_silent_cut_keeps_the_routes_and_a_clean_one_changes_them() -> None:
    with fabric(LEAF_SPINE) as net:
        before = routes(net, "l0"), routes(net, "l1")
        net.cut("l1-s0", silent=True)
        assert (routes(net, "l0"), routes(net, "l1")) == before
        black_holed = PORTS - len(arrived(net))
        assert PORTS // 5 < black_holed < PORTS * 4 // 5
        assert net.statistics()["s0:l1"].cut_packets == black_holed
        net.cut("l1-s0")
        assert "nexthop" not in routes(net, "l0") + routes(net, "l1")
        assert len(arrived(net)) == PORTS
        net.restore("l1-s0")
        assert (routes(net, "l0"), routes(net, "l1")) == before
        assert len(arrived(net)) == PORTS
        assert min(net.statistics()[way].sent_packets for way in ("l0:s0", "l0:s1")) > PORTS // 5


def test_a_link_that_is_down_comes_up_as_a_whole() -> None:
    with fabric(LEAF_SPINE) as net:
        before = routes(net, "l0"), routes(net, "s0")
        net.cut("l0-s0")
        assert routes(net, "l0") != before[0]
        net.restore("l0:s0")
        assert (routes(net, "l0"), routes(net, "s0")) == before
        net.cut("l0-s0")
        net.cut("l0:s0", silent=True)
        assert (routes(net, "l0"), routes(net, "s0")) == before
        assert (net.conditions["l0:s0"].cut, net.conditions["s0:l0"].cut) == ("silent", "no")


def test_one_direction_can_only_be_cut_in_silence() -> None:
    with fabric() as net, pytest.raises(FabricError, match="clean cut needs a whole link"):
        net.cut("l0:h0")


def test_a_host_can_be_cut_off_and_comes_back() -> None:
    with fabric() as net:
        for silent in (True, False):
            net.cut("h1-l0", silent=silent)
            assert arrived(net) == set()
            net.restore()
            assert len(arrived(net)) == PORTS


def test_a_rail_is_a_fabric_of_its_own() -> None:
    with fabric(Plan(hosts=2, leaves=2, spines=1, rails=2)) as net:
        net.cut("l0-s0", silent=True)
        assert not arrivals(net, 0, net.address(1), 1)
        assert [port for port, _ in arrivals(net, 0, net.address(1, rail=1), 1)] == [FIRST]


@pytest.mark.parametrize("way", ["l0:h1", "h0:l0"])
def test_one_direction_can_be_slow(way: str) -> None:
    with fabric() as net:
        net.limit(way, "100mbit")
        net.limit(way, "200kbit")  # and again: a host has no queue before its first limit
        arrivals(net, 0, net.address(1), 1, ports=1, count=50)  # 50 * 142 bytes: 284 ms
        assert net.statistics()["l0:h1"].sent_packets >= 50
        node, device = ("l0", "h1") if way == "l0:h1" else ("h0", "eth0")
        assert "rate 200Kbit ceil 200Kbit" in shown(net, node, "class", "show", "dev", device)


def test_loss_comes_in_bursts_of_the_asked_length() -> None:
    count, share, length = 8000, 0.1, 10.0
    with fabric() as net:
        net.lose(share, "l0:h1", burst_length=length)
        numbers = [number for _, number in arrivals(net, 0, net.address(1), 1, count=count)]
        bursts = runs_of_missing(numbers, count)
        assert net.statistics()["l0:h1"].lost_packets == sum(bursts)
    # ~80 bursts, geometric: the mean's standard deviation is 1.1, the share's 0.016. Single
    # losses would have a mean of 1.1.
    assert 5 < sum(bursts) / len(bursts) < 16
    assert 0.04 < sum(bursts) / count < 0.18


def test_loss_on_one_direction_changes_while_all_stands() -> None:
    with fabric() as net:
        net.lose(0.5, "h0:l0")
        assert PORTS * 0.1 < len(arrived(net)) < PORTS * 0.9
        taken = net.statistics()["h0:l0"].lost_packets
        assert taken > 0
        net.lose(0.0)
        assert len(arrived(net)) == PORTS
        assert net.statistics()["h0:l0"].lost_packets == taken
        assert net.lost_packets() == taken
