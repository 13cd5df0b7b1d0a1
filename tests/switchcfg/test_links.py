"""The links of an intent, and those of LLDP: one value, contradictions by name."""

import pytest

from switchcfg.errors import BadIntent
from switchcfg.fabric.answers import Heard
from switchcfg.fabric.wiring import Wiring, wiring
from switchcfg.intent.intent import Intent, parse
from switchcfg.intent.links import End
from tests.switchcfg.intents import NAME

DEVICES = "".join(
    f"""\
[[device]]
name = "{name}"
platform = "{platform}"
[[device.ports]]
names = {ports}
rate = "100Gbit"
"""
    for name, platform, ports in (
        ("leaf1", "eos", '["Ethernet[1-3]/1"]'),
        ("leaf2", "sonic", '["Ethernet[0-8/4]"]'),
        ("spine1", "nxos", '["Ethernet1/[1-2]"]'),
    )
)
TEXT = f'schema = 1\n[fabric]\nname = "lab"\n{DEVICES}'


def intent(*links: str) -> Intent:
    return parse(TEXT + "".join(f"[[link]]\nends = {link}\n" for link in links), NAME)


def shown(found: Wiring) -> list[str]:
    return [f"{link} ({', '.join(link.by)})" for link in found.links]


LEAF1 = Heard("Ethernet1/1", "spine1.lab.example", ("Ethernet1/1", "to leaf1"))
SPINE = Heard("Ethernet1/1", "LEAF1", ("Ethernet1/1", ""))


def test_ranges_are_links_port_by_port() -> None:
    found = intent('["leaf1 Ethernet[1-2]/1", "spine1 Ethernet1/[1-2]"]').links
    assert [" - ".join(map(str, link)) for link in found] == [
        "leaf1 Ethernet1/1 - spine1 Ethernet1/1",
        "leaf1 Ethernet2/1 - spine1 Ethernet1/2",
    ]


@pytest.mark.parametrize(
    ("links", "says"),
    [
        (('["leaf1 Ethernet1/1"]',), "ends: 1 ends: a link has two"),
        (('["leaf1", "spine1 Ethernet1/1"]',), "is not a valid end of a link"),
        (('["leaf1 Ethernet[1-2]/1", "spine1 Ethernet1/1"]',), "2 ports at one end, 1 at the"),
        (('["a eth0", "b eth0"]',), "neither end is a device of the intent"),
        (('["leaf1 swp1", "spine1 Ethernet1/1"]',), "leaf1 swp1: eos has ports such as"),
        (('["leaf1 Ethernet1/1", "leaf1 Ethernet2/1"]',), "both ends are on one device"),
        (('["leaf1 Ethernet[2-1]/1", "b eth0"]',), "the range is empty"),
        (
            ('["leaf1 Ethernet1/1", "spine1 Ethernet1/1"]', '["leaf1 Ethernet1/1", "host eth0"]'),
            "leaf1 Ethernet1/1 is linked to spine1 Ethernet1/1 and to host eth0",
        ),
    ],
)
def test_a_wrong_link_is_one_clear_error(links: tuple[str, ...], says: str) -> None:
    with pytest.raises(BadIntent, match=r"intent\.toml:\d+: link\[\d\]\.ends: ") as caught:
        intent(*links)
    assert says in str(caught.value)


def test_a_link_of_the_intent_and_of_both_devices_is_one() -> None:
    found = wiring(
        intent('["spine1 Ethernet1/1", "leaf1 Ethernet1/1"]'),
        {"leaf1": [LEAF1], "spine1": [SPINE]},
    )
    assert shown(found) == [
        "leaf1 Ethernet1/1 - spine1 Ethernet1/1 (the intent, LLDP on leaf1, LLDP on spine1)"
    ]
    assert not found.contradictions and not found.one_sided


def test_a_port_by_its_alias_is_found_by_what_the_other_end_hears() -> None:
    """SONiC tells its alias as id of a port, and its name as description."""
    leaf = Heard("Ethernet2/1", "leaf2", ("fortyGigE0/4", "Ethernet4"))
    back = Heard("Ethernet4", "leaf1", ("Ethernet2/1",))
    assert shown(wiring(intent(), {"leaf1": [leaf]})) == [
        "leaf1 Ethernet2/1 - leaf2 Ethernet4 (LLDP on leaf1)"
    ]
    mac = Heard("Ethernet2/1", "leaf2", ("52:54:00:00:00:01", "uplink of the rack"))
    assert shown(wiring(intent(), {"leaf1": [mac], "leaf2": [back]})) == [
        "leaf1 Ethernet2/1 - leaf2 Ethernet4 (LLDP on leaf1, LLDP on leaf2)"
    ]
    assert shown(wiring(intent(), {"leaf1": [mac]})) == [
        "leaf1 Ethernet2/1 - leaf2 (port unknown) (LLDP on leaf1)"
    ]


def test_the_intent_and_lldp_that_disagree_are_named_with_both() -> None:
    found = wiring(
        intent('["leaf1 Ethernet1/1", "spine1 Ethernet1/2"]'), {"leaf1": [LEAF1], "spine1": []}
    )
    assert found.contradictions == (
        "leaf1 Ethernet1/1: is linked to spine1 Ethernet1/1 by LLDP on leaf1; and to "
        "spine1 Ethernet1/2 by the intent",
    )
    elsewhere = wiring(intent('["leaf1 Ethernet1/1", "host1 eth0"]'), {"leaf1": [LEAF1]})
    assert "host1 eth0 by the intent; and to spine1" in elsewhere.contradictions[0]


def test_two_devices_that_disagree_are_named() -> None:
    other = Heard("Ethernet1/1", "leaf2", ("Ethernet0",))
    found = wiring(intent(), {"leaf1": [LEAF1], "spine1": [other]})
    assert found.contradictions == (
        "spine1 Ethernet1/1: is linked to leaf1 Ethernet1/1 by LLDP on leaf1; and to "
        "leaf2 Ethernet0 by LLDP on spine1",
    )
    itself = wiring(intent(), {"leaf1": [Heard("Ethernet1/1", "leaf1", ("Ethernet2/1",))]})
    assert "leaf1 Ethernet1/1: hears leaf1 itself" in itself.contradictions[0]


def test_neighbours_outside_of_the_intent_do_not_contradict_each_other() -> None:
    """A host and its management controller; a host with its domain."""
    heard = [
        Heard("Ethernet1/1", "host1.lab", ("00:00:5e:00:53:01",)),
        Heard("Ethernet1/1", "bmc1", ()),
    ]
    assert not wiring(intent(), {"leaf1": heard}).contradictions
    named = intent('["leaf1 Ethernet1/1", "host1 eth0"]')
    assert not wiring(named, {"leaf1": heard[:1]}).contradictions
    assert wiring(named, {"leaf1": heard}).contradictions
    assert (End("leaf1", "Ethernet1/1"), "bmc1") in wiring(intent(), {"leaf1": heard}).outside


def test_ports_without_a_neighbour_and_one_sided_links_are_told() -> None:
    found = wiring(intent(), {"leaf1": [LEAF1], "spine1": []})
    assert [str(each) for each in found.alone] == [
        "leaf1 Ethernet2/1",
        "leaf1 Ethernet3/1",
        "leaf2 Ethernet0",
        "leaf2 Ethernet4",
        "leaf2 Ethernet8",
        "spine1 Ethernet1/2",
    ]
    assert found.one_sided == (
        "leaf1 Ethernet1/1 - spine1 Ethernet1/1: spine1 does not hear leaf1 there",
    )
