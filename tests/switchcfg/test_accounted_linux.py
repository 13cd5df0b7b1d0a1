"""Each queue, filter and rule near QoS is read, of no matter, or refused: Linux.

Lines are of tc-filter(8) with tc-skbedit(8), tc-pedit(8) and tc-bpf(8), nft(8),
iptables-extensions(8), dcb-app(8), dcb-pfc(8), dcb-ets(8) and dcb-rewr(8).
"""

import json
from typing import Final

import pytest

from switchcfg.errors import Refused
from switchcfg.plan.account import counts
from switchcfg.plan.plan import Plan, plan
from switchcfg.plan.text import lines
from tests.switchcfg.linux_device import LinuxDevice
from tests.switchcfg.test_linux import INTENT, LINUX, SWITCH, brought

FILTER: Final = (
    "filter protocol ip pref 49152 {} chain 0 handle 0x1\n  eth_type ipv4\n  not_in_hw\n"
)


def planned(more: str) -> Plan:
    return planned_from(LinuxDevice(("p1", "p2")).says() + more)


def planned_from(text: str) -> Plan:
    return plan(INTENT, SWITCH, LINUX, LINUX.read(text))


def refusal(more: str) -> str:
    with pytest.raises(Refused) as caught:
        planned(more)
    return str(caught.value)


def chain(rule: str, hook: str = "hook postrouting priority 0", family: str = "inet") -> str:
    return (
        f"@@ ruleset\ntable {family} T {{\n\tset s {{\n\t\ttype ipv4_addr\n\t}}\n\tchain c {{\n"
        f"\t\ttype filter {hook}; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    )


def test_a_switch_that_has_ours_is_read_whole() -> None:
    present = LINUX.read(brought().says())
    assert counts(present)[0] == counts(present)[1] > 100
    again = plan(INTENT, SWITCH, LINUX, present)
    assert f"  read {again.read[0]} of {again.read[1]} QoS lines" in [*lines(again)]


@pytest.mark.parametrize(
    "action", ["skbedit priority :1 pipe", "pedit action pass keys 1", "police 0x1 rate 1Gbit",
               "bpf prog.o", "ife encode", "frobnicate"]
)  # fmt: skip
@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_a_filter_that_changes_packets_is_refused(action: str, side: str) -> None:
    text = f"@@ filters {side} p1\n{FILTER.format('flower')}\taction order 1: {action}\n"
    said = refusal(text)
    assert f'unread: p1: "filter {side} / action order 1: {action}": changes the code' in said
    assert planned(text.replace(" p1\n", " p9\n")).changes


@pytest.mark.parametrize("kind", ["bpf", "flow", "frobnicate"])
def test_a_filter_of_another_kind_is_refused(kind: str) -> None:
    said = refusal(f"@@ filters egress p1\n{FILTER.format(kind)}")
    assert 'unread: p1: "filter egress / filter protocol ip' in said


def test_a_filter_of_the_root_queue_is_refused() -> None:
    assert "a filter of the port's root queue" in refusal(
        f"@@ filters root p2\n{FILTER.format('u32')}"
    )


@pytest.mark.parametrize(
    "action", ["gact action drop", "mirred (Egress Mirror to device p2) pipe", "vlan push id 3"]
)
def test_a_filter_that_forwards_or_drops_is_of_no_matter(action: str) -> None:
    text = f"@@ filters ingress p1\n{FILTER.format('matchall')}\taction order 1: {action}\n"
    made = planned(text)
    assert made.read[0] == made.read[1] > 3


@pytest.mark.parametrize(
    "rule",
    [
        "ip dscp set 0x00",
        "tcp dport 80 counter ip6 dscp set 0x12 accept",
        "ip ecn set 0x3",
        "meta priority set 1:5",
        "vlan pcp set 3",
        "@nh,8,8 set 0x0",
        "meta mark set 0x1 ip dscp set 0x00",
        "ip frobnicate set 3",
        'meta l4proto tcp counter xt target "DSCP"',
        'counter xt target "CLASSIFY"',
        'counter xt target "FROBNICATE"',
    ],
)
def test_a_rule_that_changes_packets_is_refused(rule: str) -> None:
    assert f'unread: sw: "inet T: {rule}": ' in refusal(chain(rule))
    ports = 'hook egress devices = { "p9", "p2" } priority 9'
    assert f'unread: p2: "netdev T: {rule}": ' in refusal(chain(rule, ports, "netdev"))
    assert planned(chain(rule, ports.replace("p2", "p8"), "netdev")).changes


@pytest.mark.parametrize(
    "rule",
    [
        "tcp dport { 22, 443 } accept",
        "ip dscp 0x2e counter packets 0 bytes 0",
        "meta mark set 0x1",
        "ct mark set meta mark",
        "tcp flags syn tcp option maxseg size set rt mtu",
        "ip saddr 10.0.0.0/8 masquerade",
        'counter xt target "MASQUERADE"',
        "jump other",
    ],
)
def test_a_rule_that_filters_or_translates_is_of_no_matter(rule: str) -> None:
    made = planned(chain(rule))
    assert made.read[0] == made.read[1] == planned("").read[1] + 1


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("-A FORWARD -p tcp -j DSCP --set-dscp 0x00", True),
        ("-A POSTROUTING -j CLASSIFY --set-class 1:5", True),
        ("-A POSTROUTING -j TOS --set-tos 0x10/0x3f", True),
        ("-A OUTPUT -p tcp -j ECN --ecn-tcp-remove", True),
        ("-A FORWARD -j FROBNICATE", True),
        ("-A ALL -j UNREADABLE", True),
        ("-A FORWARD -j MARK --set-xmark 0x1/0x1", False),
        ("-A FORWARD -j my-chain", False),
        ("-A FORWARD -p tcp -j TCPMSS --clamp-mss-to-pmtu", False),
        (":FORWARD ACCEPT [0:0]", False),
    ],
)
def test_the_old_mangle_table_is_read(rule: str, refused: bool) -> None:
    text = f"@@ mangle \n*mangle\n{rule}\nCOMMIT\n"
    if refused:
        assert f'unread: sw: "mangle / {rule}": ' in refusal(text)
    else:
        assert planned(text).changes


@pytest.mark.parametrize(
    ("what", "line", "refused"),
    [
        ("pfc", "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off", True),
        ("pfc", "prio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:off 7:off", False),
        ("pfc", "pfc-cap 8 macsec-bypass off delay 0", False),
        ("app", "dscp-prio 24:3 26:3", True),
        ("app", "ethtype-prio 0x8906:3", True),
        ("app", "frobnicate", True),
        ("ets", "prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7", True),
        ("ets", "prio-tc 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0", False),
        ("ets", "tc-tsa 0:strict 1:strict 2:ets", False),
        ("ets", "willing off ets-cap 8 cbs off", False),
        ("rewr", "prio-dscp 3:24", True),
        ("maxrate", "tc-maxrate 0:100Mbit", True),
        ("maxrate", "tc-maxrate 0:inf 1:inf", False),
        ("apptrust", "order dscp", True),
    ],
)
def test_the_chips_queues_are_read(what: str, line: str, refused: bool) -> None:
    text = f"@@ dcb {what} p1\n{line}\n"
    if refused:
        assert f'unread: p1: "dcb {what} / {line}": ' in refusal(text)
    else:
        assert planned(text).changes


def test_a_class_that_is_not_known_in_the_root_of_switchcfg_is_refused() -> None:
    text = brought().says().replace("@@ port p1\n", "@@ port p1\nclass htb dc:1f frobnicate\n")
    with pytest.raises(Refused, match='unread: p1: "class htb dc:1f frobnicate": not understood'):
        plan(INTENT, SWITCH, LINUX, LINUX.read(text))


ABOVE: Final = "@@ uppers p1\nbond0\nbr0\n@@ uppers p2\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (f"@@ filters egress bond0\n{FILTER.format('flower')}\taction order 1: skbedit x\n",
         'unread: p1: "bond0: filter egress / action order 1: skbedit x": changes the code'),
        (chain("ip dscp set cs1", 'hook ingress device "br0" priority 0', "netdev"),
         'unread: p1: "netdev T: ip dscp set cs1": changes the code'),
        (chain("queue num 0"), 'unread: sw: "inet T: queue num 0": changes the code'),
    ],
)  # fmt: skip
def test_devices_above_a_port_are_near_it(more: str, says: str) -> None:
    """A bond and a bridge have the packets of a port before it sends them."""
    said = refusal(ABOVE + more)
    assert says in said
    assert "p2: " not in said
    far = more.replace("bond0", "bond1").replace("br0", "br1").replace("queue num 0", "accept")
    assert planned(ABOVE + far).changes


@pytest.mark.parametrize(("handle", "refused"), [("1:", True), ("0:", False)])
def test_a_queue_above_a_port_is_refused(handle: str, refused: bool) -> None:
    device = LinuxDevice(("p1", "p2"))
    row = {"kind": "cake", "handle": handle, "dev": "bond0", "root": True, "options": {}}
    text = device.says().replace("@@ qdiscs\n[", f"@@ qdiscs\n[{json.dumps(row)}, ")
    text = text.replace("}, ]", "}]")
    assert planned_from(text).changes  # of no port
    if refused:
        with pytest.raises(Refused, match=r'unread: p1: "bond0: qdisc cake 1: root": packets'):
            planned_from(text + ABOVE)
    else:
        assert planned_from(text + ABOVE).changes


def test_the_snapshot_asks_for_filters_rules_and_the_chips_queues() -> None:
    script = LINUX.shell(INTENT, SWITCH).snapshot
    for each in ('tc filter show dev "$port" "$side"', "nft -s -nn list ruleset", 'dcb "$what"'):
        assert each in script
