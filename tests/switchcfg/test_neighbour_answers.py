"""What devices tell of their neighbours, in every platform's form; other text is one error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import BadState
from switchcfg.fabric import answers
from switchcfg.fabric.answers import Heard
from switchcfg.fabric.questions import QUESTIONS
from switchcfg.intent.known import KNOWN

CAPTURED = Path(__file__).parent / "captured"
SONIC = {
    "LLDP_ENTRY_TABLE:Ethernet0": {
        "expireat": 1764420000.0,
        "ttl": -0.001,
        "type": "hash",
        "value": {
            "lldp_rem_chassis_id": "00:00:5e:00:53:01",
            "lldp_rem_port_id": "Ethernet1/1",
            "lldp_rem_port_desc": "to leaf2",
            "lldp_rem_sys_name": "spine1",
        },
    }
}
EOS: Any = [
    {
        "tablesLastChangeTime": 1764420000.0,
        "lldpNeighbors": [
            {
                "port": "Ethernet1/1",
                "neighborDevice": "spine1.lab",
                "neighborPort": "Ethernet1/1",
                "ttl": 120,
            }
        ],
    }
]
EOS_BGP: Any = [
    {
        "vrfs": {
            "default": {
                "peers": {
                    "192.0.2.1": {"peerState": "Established"},
                    "192.0.2.3": {"peerState": "Active"},
                }
            },
            "blue": {"peers": {"192.0.2.9": {"peerState": "Established"}}},
        }
    }
]
NXOS = {
    "TABLE_nbor_detail": {
        "ROW_nbor_detail": {
            "chassis_id": "0000.5e00.5301",
            "port_id": "Ethernet1/1",
            "l_port_id": "Eth1/2",
            "port_desc": "null",
            "sys_name": "leaf1",
        }
    }
}
NXOS_BGP = {
    "TABLE_vrf": {
        "ROW_vrf": {
            "vrf-name-out": "default",
            "TABLE_neighbor": {
                "ROW_neighbor": [
                    {"neighbor-id": "192.0.2.1", "state": "Established"},
                    {"neighbor-id": "192.0.2.3", "state": "Idle"},
                ]
            },
        }
    }
}
JUNOS = """\
<rpc-reply xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><lldp-neighbors-information
xmlns="http://xml.juniper.net/junos/24.4R1/junos-lldp"><lldp-neighbor-information>
<lldp-local-port-id>et-0/0/0</lldp-local-port-id>
<lldp-local-parent-interface-name>-</lldp-local-parent-interface-name>
<lldp-remote-chassis-id>00:00:5e:00:53:01</lldp-remote-chassis-id>
<lldp-remote-port-description>et-0/0/7</lldp-remote-port-description>
<lldp-remote-system-name>spine1</lldp-remote-system-name>
</lldp-neighbor-information></lldp-neighbors-information></rpc-reply>
"""
JUNOS_BGP = """\
<rpc-reply><bgp-information><bgp-peer><peer-address>192.0.2.1</peer-address>
<peer-state>Established</peer-state></bgp-peer><bgp-peer><peer-address>192.0.2.5</peer-address>
<peer-state>2/3/3/0</peer-state></bgp-peer><bgp-peer><peer-address>192.0.2.3</peer-address>
<peer-state>Connect</peer-state></bgp-peer></bgp-information></rpc-reply>
"""
JUNOS_MTU = """\
<rpc-reply><interface-information><physical-interface><name>
et-0/0/0
</name><mtu>9192</mtu></physical-interface><physical-interface><name>lo0</name>
<mtu>Unlimited</mtu></physical-interface></interface-information></rpc-reply>
"""
OPENCONFIG: Any = [
    {
        "openconfig-lldp:interfaces": {
            "interface": [
                {
                    "name": "Ethernet1",
                    "neighbors": {
                        "neighbor": [
                            {
                                "id": "1",
                                "state": {
                                    "system-name": "spine1",
                                    "port-id": "Ethernet7",
                                    "port-description": "to leaf1",
                                },
                            }
                        ]
                    },
                }
            ]
        }
    }
]
OPENCONFIG_BGP: Any = [
    {
        "openconfig-network-instance:neighbor": [
            {
                "neighbor-address": "192.0.2.1",
                "state": {"neighbor-address": "192.0.2.1", "session-state": "ESTABLISHED"},
            },
            {
                "neighbor-address": "192.0.2.3",
                "state": {"neighbor-address": "192.0.2.3", "session-state": "IDLE"},
            },
        ]
    }
]
OPENCONFIG_MTU: Any = [
    {
        "openconfig-interfaces:interface": [
            {"name": "Ethernet1", "state": {"type": "ethernetCsmacd", "mtu": 9214}}
        ]
    }
]
FRR: Any = {
    "default": {
        "ipv4Unicast": {"peers": {"swp1": {"state": "Established"}, "swp2": {"state": "Idle"}}},
        "l2VpnEvpn": {"peers": {"swp1": {"state": "Established"}}},
    }
}
PEER = "<r><bgp-peer><peer-state>Established</peer-state></bgp-peer></r>"
SAID: tuple[tuple[Callable[[str], object], Any, object], ...] = (
    (answers.lldp_of_sonic, SONIC, (Heard("Ethernet0", "spine1", ("Ethernet1/1", "to leaf2")),)),
    (answers.lldp_of_eos, EOS, (Heard("Ethernet1/1", "spine1.lab", ("Ethernet1/1",)),)),
    (answers.lldp_of_nxos, NXOS, (Heard("Ethernet1/2", "leaf1", ("Ethernet1/1", "null")),)),
    (answers.lldp_of_junos, JUNOS, (Heard("et-0/0/0", "spine1", ("et-0/0/7",)),)),
    (
        answers.lldp_of_openconfig,
        OPENCONFIG,
        (Heard("Ethernet1", "spine1", ("Ethernet7", "to leaf1")),),
    ),
    (answers.bgp_of_frr, FRR, {"swp1"}),
    (answers.bgp_of_eos, EOS_BGP, {"192.0.2.1", "192.0.2.9"}),
    (answers.bgp_of_nxos, NXOS_BGP, {"192.0.2.1"}),
    (answers.bgp_of_junos, JUNOS_BGP, {"192.0.2.1", "192.0.2.5"}),
    (answers.bgp_of_openconfig, OPENCONFIG_BGP, {"192.0.2.1"}),
    (answers.mtu_of_linux, [{"ifname": "swp1", "mtu": 9100}], {"swp1": 9100}),
    (
        answers.mtu_of_eos,
        [{"interfaces": {"Ethernet1": {"name": "Ethernet1", "mtu": 9214}}}],
        {"Ethernet1": 9214},
    ),
    (
        answers.mtu_of_nxos,
        {"TABLE_interface": {"ROW_interface": [{"interface": "Ethernet1/1", "eth_mtu": "9216"}]}},
        {"Ethernet1/1": 9216},
    ),
    (answers.mtu_of_junos, JUNOS_MTU, {"et-0/0/0": 9178}),
    (answers.mtu_of_openconfig, OPENCONFIG_MTU, {"Ethernet1": 9214}),
)
READERS = {read for q in QUESTIONS.values() for read in (q.read_lldp, q.read_bgp, q.read_mtu)}


def as_text(said: Any) -> str:
    return said if isinstance(said, str) else json.dumps(said)


@pytest.mark.parametrize(("read", "said", "means"), SAID, ids=lambda e: getattr(e, "__name__", ""))
def test_every_platform_is_understood(
    read: Callable[[str], object], said: Any, means: object
) -> None:
    assert read(as_text(said)) == means


@pytest.mark.parametrize(
    ("file", "ports"), [("lldpd.json", 2), ("lldpd.json0", 2), ("lldpd_one.json", 1)]
)
def test_lldpd_itself_is_understood_with_one_neighbour_and_with_several(
    file: str, ports: int
) -> None:
    found = answers.lldp_of_lldpd((CAPTURED / file).read_text())
    assert [(each.port, each.system, each.ports[1]) for each in found] == [
        (f"swp{n}", "spine1.lab", f"Ethernet{n}") for n in range(1, ports + 1)
    ]


def test_all_readers_and_all_platforms_are_covered() -> None:
    assert {read for read, _, _ in SAID} | {answers.lldp_of_lldpd} == READERS
    assert set(QUESTIONS) == set(KNOWN)


def test_no_bgp_is_no_session() -> None:
    assert answers.bgp_of_frr("% BGP instance not found\n") == frozenset()
    assert answers.bgp_of_frr("") == frozenset()


@pytest.mark.parametrize(
    "said",
    [
        "<a>",
        "{",
        "[" * 100_000,
        '{"a": ' * 100 + "1" + "}" * 100,
        "<!ENTITY x 'y'>",
        PEER,
        "\x00",
        "no",
    ],
)
def test_other_text_is_one_error_and_nothing_else(said: str) -> None:
    for read in READERS:
        try:
            assert not read(said)
        except BadState:
            continue


TREES = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "interface",
                    "chassis",
                    "port",
                    "name",
                    "id",
                    "value",
                    "descr",
                    "peers",
                    "mtu",
                    "state",
                    "neighbors",
                    "port-id",
                    "l_port_id",
                    "ifname",
                    "neighborDevice",
                    "neighbor-id",
                    "neighbor-address",
                    "system-name",
                    "LLDP_ENTRY_TABLE:Ethernet0",
                    "interfaces",
                    "eth_mtu",
                    "type",
                    "session-state",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(TREES)
def test_values_of_other_kinds_are_no_crash(tree: Any) -> None:
    for read in READERS:
        try:
            read(json.dumps(tree))
        except BadState:
            continue


def test_rows_are_bounded() -> None:
    rows = [{"ifname": f"p{n}", "mtu": 1} for n in range(answers.MAX_ROWS + 1)]
    with pytest.raises(BadState, match="more than"):
        answers.mtu_of_linux(json.dumps(rows))
    xml = "<r>" + "<bgp-peer/>" * (answers.MAX_ROWS + 1) + "</r>"
    with pytest.raises(BadState, match="more than"):
        answers.bgp_of_junos(xml)
