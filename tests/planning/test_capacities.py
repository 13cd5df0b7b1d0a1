"""What a host of a topology tells its peers."""

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.planning.capacities import capacity_of
from dlcpd.planning.topology import parse
from dlcpd.schedules.network import MAX_RATE, BadNetwork, HostCapacity, JobNetwork, job_network

G = 10**9
ONE_SWITCH = '[hosts]\na = "10gbit"\nb = { send = "2gbit", receive = "4gbit" }\n'
RACKS = ONE_SWITCH + (
    '[racks.left]\nhosts = ["a"]\nuplink = "5gbit"\n'
    '[racks.right]\nhosts = ["b"]\nuplink = { send = "1gbit", receive = "3gbit" }\n'
)
SPINES = """
hosts = ["a", "b"]
switches = ["l0", "l1", "s0", "s1"]
links = [
    { from = "a", to = "l0", rate = "10gbit" },
    { from = "b", to = "l1", rate = "10gbit" },
    { from = "l0", to = "s0", rate = "4gbit" },
    { from = "l0", to = "s1", rate = "3gbit" },
    { from = "l1", to = "s0", rate = "4gbit" },
    { from = "l1", to = "s1", rate = "4gbit" },
]
"""


@pytest.mark.parametrize(
    ("text", "host", "told"),
    [
        (ONE_SWITCH, "a", HostCapacity((10 * G,), (10 * G,))),
        (ONE_SWITCH, "b", HostCapacity((2 * G,), (4 * G,))),
        (ONE_SWITCH, "c", None),
        (RACKS, "a", HostCapacity((10 * G,), (10 * G,), "left", 5 * G, 5 * G)),
        (RACKS, "b", HostCapacity((2 * G,), (4 * G,), "right", G, 3 * G)),
        (SPINES, "a", HostCapacity((10 * G,), (10 * G,), "l0", 7 * G, 7 * G)),
        (SPINES, "b", HostCapacity((10 * G,), (10 * G,), "l1", 8 * G, 8 * G)),
    ],
)
def test_a_host_tells_its_rates_and_its_rack(
    text: str, host: str, told: HostCapacity | None
) -> None:
    assert capacity_of(parse(text, "x"), host) == told


def test_rates_are_within_what_peers_take() -> None:
    fastest = ", ".join(['{ from = "a", to = "s", rate = "1000tbit" }'] * 2)
    text = f'hosts = ["a"]\nswitches = ["s"]\nlinks = [{fastest}]\n'
    assert capacity_of(parse(text, "x"), "a") == HostCapacity((MAX_RATE,), (MAX_RATE,))


@pytest.mark.parametrize(
    "links",
    [
        '{ from = "a", to = "b", rate = "1gbit" }',
        '{ from = "a", to = "s", rate = "1gbit" }, { from = "a", to = "t", rate = "1gbit" },'
        '{ from = "b", to = "s", rate = "1gbit" }, { from = "t", to = "s", rate = "1gbit" }',
        '{ from = "a", to = "s", rate = "1gbit", one_way = true },'
        '{ from = "t", to = "a", rate = "1gbit", one_way = true },'
        '{ from = "b", to = "s", rate = "1gbit" }, { from = "t", to = "s", rate = "1gbit" }',
    ],
)
def test_a_host_that_a_rate_and_a_rack_do_not_describe_is_refused(links: str) -> None:
    text = f'hosts = ["a", "b"]\nswitches = ["s", "t"]\nlinks = [{links}]\n'
    with pytest.raises(BadConfig, match="host 'a' needs one link in both directions, to a switch"):
        capacity_of(parse(text, "x"), "a")


def told(rate: int, rack: str = "", uplink: int = 0) -> HostCapacity:
    return HostCapacity((rate,), (rate,), rack, uplink, uplink)


def test_all_hosts_have_the_same_network_of_what_each_told() -> None:
    hosts = [("a", told(10, "x", 7)), ("b", told(20, "y", 9)), ("c", told(10, "x", 6))]
    made = job_network(hosts)
    assert made is not None
    assert made.groups == ((0, 2), (1,))
    assert [rack.up_bps for rack in made.racks] == [6, 9], "the least of what was told"
    again = job_network([(str(at), each) for at, each in enumerate(made.capacities)])
    assert isinstance(again, JobNetwork)
    assert (again.rates, again.groups) == (made.rates, made.groups)


def test_hosts_that_tell_nothing_are_no_network() -> None:
    assert job_network([("a", None), ("b", None)]) is None
    assert job_network([]) is None


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ([("a", told(10)), ("b", None)], "host b told no rate: set .planner. topology there"),
        ([("a", told(10)), ("b", told(10, "x", 5))], "host a is in no rack"),
        ([("a", told(10, "y")), ("b", told(10, "x", 5))], "uplink without a positive rate"),
    ],
)
def test_what_is_no_network_is_refused_by_name(
    hosts: list[tuple[str, HostCapacity | None]], why: str
) -> None:
    with pytest.raises(BadNetwork, match=why):
        job_network(hosts)
