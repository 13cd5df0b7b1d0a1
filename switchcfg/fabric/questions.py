"""The questions to a device about its neighbours, in the language of its driver. Pure.

A question is a shell command (SSH), a command (eAPI, NX-API), an RPC (NETCONF) or a path (gNMI).
It changes nothing. One that a device refuses leaves its subject unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from switchcfg.fabric import answers
from switchcfg.fabric.answers import Lldp, Mtus, Sessions

LLDPD: Final = "lldpctl -f json"
# vtysh ends with an error where bgpd does not run: then no session is up.
FRR: Final = (
    "command -v vtysh >/dev/null || exit 0\n"
    "vtysh -c 'show bgp vrf all summary json' 2>/dev/null || :"
)
LINKS: Final = "ip -j link show"
# One program for all rows; `show lldp table` cuts names, and prints no JSON.
SONIC_LLDP: Final = "sonic-db-dump -n APPL_DB -k 'LLDP_ENTRY_TABLE:*' -y"
GNMI_BGP: Final = (
    "openconfig-network-instance:network-instances/network-instance/protocols/protocol/bgp"
    "/neighbors"
)


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions to devices of a platform; several answers count together."""

    lldp: str
    read_lldp: Callable[[str], Lldp]
    bgp: Sequence[str]
    read_bgp: Callable[[str], Sessions]
    mtu: str
    read_mtu: Callable[[str], Mtus]


_LINUX: Final = Questions(
    LLDPD, answers.lldp_of_lldpd, (FRR,), answers.bgp_of_frr, LINKS, answers.mtu_of_linux
)
QUESTIONS: Final[Mapping[str, Questions]] = {
    "linux": _LINUX,
    "nvue": _LINUX,
    "sonic": Questions(
        SONIC_LLDP, answers.lldp_of_sonic, (FRR,), answers.bgp_of_frr, LINKS, answers.mtu_of_linux
    ),
    "eos": Questions(
        "show lldp neighbors",
        answers.lldp_of_eos,
        ("show ip bgp summary vrf all", "show ipv6 bgp summary vrf all"),
        answers.bgp_of_eos,
        "show interfaces",
        answers.mtu_of_eos,
    ),
    "nxos": Questions(
        "show lldp neighbors detail",
        answers.lldp_of_nxos,
        ("show bgp sessions vrf all",),
        answers.bgp_of_nxos,
        "show interface",
        answers.mtu_of_nxos,
    ),
    "junos": Questions(
        "<get-lldp-neighbors-information/>",
        answers.lldp_of_junos,
        ("<get-bgp-summary-information/>",),
        answers.bgp_of_junos,
        "<get-interface-information><media/></get-interface-information>",
        answers.mtu_of_junos,
    ),
    "openconfig": Questions(
        "openconfig-lldp:lldp",
        answers.lldp_of_openconfig,
        (GNMI_BGP,),
        answers.bgp_of_openconfig,
        "openconfig-interfaces:interfaces",
        answers.mtu_of_openconfig,
    ),
}
