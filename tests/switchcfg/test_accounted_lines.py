"""Each line near QoS is read, of no matter, or refused: EOS and NX-OS.

Lines are of the EOS manual 4.30 ("Quality of Service"), Arista's AVD templates, and the Nexus 9000
QoS guide 10.x.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import Refused
from switchcfg.plan.account import UNREAD, counts
from switchcfg.plan.plan import dump, load, plan, removal
from switchcfg.plan.state import after
from switchcfg.plan.text import lines
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import planned, refusal, wanted

EOS = (
    "hostname leaf\nqos profile STORAGE\n   uc-tx-queue 3\n      LINE\n"
    "interface Ethernet1/1\n   service-profile STORAGE\ninterface Ethernet2/1\n"
)
TAKES = 'queues = [3]\nreplaces = ["STORAGE"]'
PORT = "hostname leaf\ninterface Ethernet1/1\n   LINE\ninterface Ethernet2/1\n"
NXOS = (
    "hostname leaf\n"
    "class-map type qos match-any RDMA\n  MATCH\n"
    "policy-map type qos CLASSIFY\n  class RDMA\n    set qos-group 3\n"
    "policy-map type queuing OUT\n  class type queuing c-out-8q-q3\n    LINE\n"
    "policy-map type network-qos NQ\n  class type network-qos c-8q-nq3\n    pause pfc-cos 3\n"
    "system qos\n  service-policy type network-qos NQ\n"
    "interface Ethernet1/1\n  priority-flow-control mode on\n"
    "  service-policy type qos input CLASSIFY\n  service-policy type queuing output OUT\n"
    "interface Ethernet1/2\n"
)
REPLACES = 'queues = [3]\nreplaces = ["CLASSIFY", "OUT"]\n[keep.dscp]\n24 = 3'


def nxos(line: str = "bandwidth remaining percent 50", match: str = "match dscp 24") -> str:
    return NXOS.replace("MATCH", match).replace("LINE", line)


@pytest.mark.parametrize(
    "unit", ["bytes", "kbytes", "mbytes", "segments", "microseconds", "milliseconds"]
)
@pytest.mark.parametrize(
    "tail", ["", " max-mark-probability 20", " max-mark-probability 9 weight 1"]
)
def test_ecn_of_a_kept_queue_is_seen_in_every_unit_of_eos(unit: str, tail: str) -> None:
    ecn = f"random-detect ecn minimum-threshold 2000 {unit} maximum-threshold 8000 {unit}{tail}"
    assert "lose ECN in kept queue 3" in refusal("eos", EOS.replace("LINE", ecn), TAKES)


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("bandwidth percent 40", "`bandwidth percent` in kept queue 3"),
        ("no priority", "`no priority` in kept queue 3"),
        ("bandwidth guaranteed percent 10", "`bandwidth guaranteed` in kept queue 3"),
        ("shape rate 10 gbps", "`shape rate` in kept queue 3"),
        (
            "random-detect drop drop-precedence 1 minimum-threshold 1 mbytes maximum-threshold 2 "
            "mbytes drop-probability 50",
            "`random-detect drop drop-precedence` in kept queue 3",
        ),
        (
            "random-detect drop minimum-threshold 10 segments maximum-threshold 20 segments "
            "drop-probability 50",
            "`random-detect drop minimum-threshold` in kept queue 3",
        ),
    ],
)
def test_all_that_a_kept_queue_has_in_a_profile_of_eos_is_seen(line: str, lost: str) -> None:
    assert f"lose {lost}" in refusal("eos", EOS.replace("LINE", line), TAKES)
    other = EOS.replace("uc-tx-queue 3", "uc-tx-queue 2").replace("LINE", line)
    assert planned("eos", other, TAKES).changes


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("qos trust cos", "classification by cos for kept queues"),
        ("shape rate 50 gbps", "the shaper of the port (50 gbps)"),
        ("service-policy type qos input MARK", "its service policy (MARK)"),
        ("qos cos 3", "its default CoS (3)"),
        ("qos dscp 24", "its default code point (24)"),
    ],
)
def test_what_a_profile_of_eos_does_to_the_port_is_seen(line: str, lost: str) -> None:
    text = EOS.replace("uc-tx-queue 3\n      LINE", line)
    assert f"lose {lost}" in refusal("eos", text, TAKES)


@pytest.mark.parametrize(
    "line",
    [
        "qos trust cos",
        "no qos trust",
        "qos cos 3",
        "qos dscp 24",
        "uc-tx-queue 6\n      no priority\n      bandwidth percent 5",
        "tx-queue 6\n      bandwidth percent 5",
        "shape rate 10 percent",
        "service-policy type qos input MARK",
        "flowcontrol receive on",
        "profile SERVER",
        "traffic-policy input MARK",
        "qos rewrite dscp",
    ],
)
def test_lines_of_a_port_of_eos_that_win_over_its_profile_are_refused(line: str) -> None:
    said = refusal("eos", PORT.replace("LINE", line))
    assert f'unread: Ethernet1/1: "{line.splitlines()[0]}' in said
    # Of a port that the plan does not touch, they are counted only.
    far = PORT.replace("interface Ethernet2/1", "interface Ethernet3/1").replace("1/1", "9/1")
    far += "interface Ethernet1/1\ninterface Ethernet2/1\n"
    made = planned("eos", far.replace("LINE", line))
    assert made.read[0] < made.read[1]
    assert any("not near what the plan touches" in each for each in lines(made))


@pytest.mark.parametrize(
    "line",
    [
        "description qos trust cos",
        "mtu 9214",
        "no switchport",
        "switchport trunk allowed vlan 2-9",
        "ip address 192.0.2.1/31",
        "qos trust dscp",
        "uc-tx-queue 3\n      random-detect ecn count",
        "priority-flow-control on",
        "flowcontrol send off",
    ],
)
def test_lines_of_a_port_of_eos_that_choose_no_queue_are_of_no_matter(line: str) -> None:
    made = planned("eos", PORT.replace("LINE", line))
    assert made.read[0] == made.read[1] > 2
    assert f"  read {made.read[0]} of {made.read[1]} QoS lines" in [*lines(made)]
    assert load(dump(made), "plan") == made


@pytest.mark.parametrize(
    "line",
    [
        "qos rewrite dscp",
        "qos rewrite cos",
        "qos map traffic-class 5 to dscp 0",
        "qos map traffic-class 1 to cos 2",
        "qos map dscp ef to traffic-class 3",
        "qos map traffic-class 3 to uc-tx-queue 3",
        "qos random-detect ecn global-buffer minimum-threshold 1 mbytes maximum-threshold 2 mbytes",
        "priority-flow-control all off",
        "platform sand qos map traffic-class 3 to network-qos 5",
    ],
)
def test_lines_of_the_whole_switch_are_read_or_refused_on_eos(line: str) -> None:
    assert f'unread: leaf: "{line}' in refusal("eos", line + "\n" + PORT.replace("   LINE\n", ""))


@pytest.mark.parametrize(
    "match",
    [
        "match access-group name RDMA",
        "match precedence 3",
        "match protocol arp",
        "match packet length 100-200",
        "match ip rtp 2000-3000",
        "match cos 3",
        "match dscp 25",
        "match dscp 24\n  match access-group name RDMA",
    ],
)
def test_a_class_that_is_not_matched_by_our_code_points_is_not_ended_on_nxos(match: str) -> None:
    said = refusal("nxos", nxos(match=match), REPLACES)
    assert "'CLASSIFY', and the plan would replace it and lose" in said
    assert "kept queue 3" in said
    free = nxos(match=match).replace("set qos-group 3", "set qos-group 2")
    assert planned("nxos", free, REPLACES).changes


def test_the_default_class_and_marking_of_a_kept_queue_are_seen_on_nxos() -> None:
    default = nxos().replace("class RDMA\n", "class class-default\n")
    assert "lose all other packets in kept queue 3" in refusal("nxos", default, REPLACES)
    for mark in ("set dscp 26", "set cos 3", "police cir 1 gbps conform transmit"):
        text = nxos().replace("    set qos-group 3\n", f"    set qos-group 3\n    {mark}\n")
        assert f"lose `{mark}` in kept queue 3" in refusal("nxos", text, REPLACES)


@pytest.mark.parametrize(
    "line",
    [
        "random-detect minimum-threshold 100 packets maximum-threshold 2000 packets "
        "drop-probability 7 weight 0 ecn",
        "random-detect minimum-threshold 10 us maximum-threshold 20 us drop-probability 7 ecn",
        "random-detect minimum-threshold 1 ms maximum-threshold 2 ms",
        "random-detect threshold burst-optimized ecn",
        "priority level 1",
        "priority",
        "bandwidth percent 30",
        "shape min 1 gbps max 10 gbps",
        "queue-limit dynamic 5",
    ],
)
def test_all_that_a_kept_queue_has_in_a_queuing_policy_is_seen(line: str) -> None:
    assert "in kept queue 3" in refusal("nxos", nxos(line), REPLACES)


def test_share_and_limit_of_a_kept_queue_go_on_in_ours_on_nxos() -> None:
    platform, text = (
        PLATFORMS["nxos"],
        nxos("queue-limit 2 mbytes\n    bandwidth remaining percent 60"),
    )
    made = planned("nxos", text, REPLACES)
    told = made.steps[0].payload
    assert "  class type queuing c-out-8q-q3\n    bandwidth remaining percent 60\n" in told
    assert "    queue-limit 2000000 bytes\n" in told
    then = after(platform.read(text), made.changes)
    assert not plan(*wanted("nxos", REPLACES), platform, then).changes
    # Without ours, flow control would stay, and nothing would be sent to its queue.
    with pytest.raises(Refused, match="Ethernet1/1 has PFC on queue 3, and the plan would remove"):
        removal(*wanted("nxos", REPLACES), platform, then)
    two = text.replace(
        "policy-map type network",
        "  class type queuing c-out-8q-q2\n    bandwidth remaining percent 60\n"
        "policy-map type network",
        1,
    )
    both = REPLACES.replace("[3]", "[2, 3]")
    assert "share: the `bandwidth remaining percent` of 'DLCP-OUT' sum to 120" in refusal(
        "nxos", two, both
    )
    assert planned("nxos", two.replace("percent 60", "percent 50"), both).changes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c-out-8q-q3", "c-out-q3"),
        ("c-8q-nq3", "c-nq3"),
        (
            "system qos\n",
            "system qos\n  service-policy type queuing output default-out-policy\n",
        ),
    ],
)
def test_a_switch_of_four_queues_is_refused(old: str, new: str) -> None:
    assert "the switch has four queues" in refusal("nxos", nxos().replace(old, new), REPLACES)


@pytest.mark.parametrize(
    "line",
    [
        "service-policy type qos output MARK",
        "service-policy output MARK",
        "flowcontrol receive on",
        "priority-flow-control no-drop 3",
        "inherit port-profile SERVERS",
    ],
)
def test_lines_of_a_port_of_nxos_are_read_or_refused(line: str) -> None:
    said = refusal(
        "nxos", f"hostname leaf\ninterface Ethernet1/1\n  {line}\ninterface Ethernet1/2\n"
    )
    assert f'unread: Ethernet1/1: "{line}' in said


@pytest.mark.parametrize(
    ("platform", "section"),
    [
        ("nxos", "vlan configuration 10\n  service-policy type qos input MARK\n"),
        ("nxos", "system qos-all\n  service-policy type network-qos NQ\n"),
        ("nxos", "policy type qos X\n  class Y\n    set qos-group 3\n"),
        ("eos", "profile qos STORAGE\n   qos trust cos\n"),
        ("eos", "qos-profile X\n   uc-tx-queue 3\n      random-detect ecn minimum-threshold 1 "
         "segments maximum-threshold 2 segments\n"),
    ],
)  # fmt: skip
def test_lines_of_qos_in_a_section_that_is_not_known_are_refused(
    platform: str, section: str
) -> None:
    text = (PORT.replace("   LINE\n", "") if platform == "eos" else nxos()) + section
    line = section.splitlines()[-1].strip()
    assert f'unread: leaf: "{section.splitlines()[0]} / ' in (
        said := refusal(platform, text, REPLACES if platform == "nxos" else "queues = [3]")
    )
    assert line in said


@pytest.mark.parametrize(
    "section",
    [
        "route-map RM permit 10\n  match ip address prefix-list P\n  match mac-list M\n",
        "router bgp 65001\n  template peer P\n    priority 7\n",
        "port-profile type ethernet P\n  service-policy type qos input MARK\n",
        "vlan 10\n  name qos\n",
        "control-plane\n  service-policy input copp-system-p-policy-strict\n",
    ],
)
def test_lines_of_other_sections_are_not_near(section: str) -> None:
    assert planned("nxos", nxos() + section, REPLACES).changes


def test_a_class_without_a_class_map_is_not_ended() -> None:
    text = nxos().replace("class-map type qos match-any RDMA\n  match dscp 24\n", "")
    said = refusal("nxos", text, REPLACES)
    assert "lose the class 'RDMA', of which no `match` is read in kept queue 3" in said


def test_a_removal_does_not_take_lines_of_others_with_our_profile() -> None:
    platform = PLATFORMS["eos"]
    text = EOS.replace("STORAGE", "DLCP").replace("LINE", "drop-precedence 1 drop-threshold 9")
    with pytest.raises(Refused, match='unread: qos profile DLCP: "uc-tx-queue 3 / drop-prec'):
        removal(*wanted("eos"), platform, platform.read(text))


# --- one line changed ----------------------------------------------------------------------

BASE = {
    "eos": (
        EOS.replace(
            "uc-tx-queue 3\n      LINE",
            "qos trust dscp\n   uc-tx-queue 2\n      no priority\n"
            "      bandwidth percent 40\n      random-detect ecn minimum-threshold 20 kbytes "
            "maximum-threshold 80 kbytes max-mark-probability 20 weight 0",
        )
        + "qos map dscp 24 25 to traffic-class 3\n",
        TAKES,
    ),
    "nxos": (nxos("bandwidth remaining percent 50"), REPLACES),
}
WORDS = ("segments", "shape", "percent", "ecn", "no", "frobnicate", "7", "cos", "input", "|")


@pytest.mark.parametrize("platform", BASE)
@given(data=st.data())
def test_a_line_that_changes_is_read_so_or_refused(platform: str, data: st.DataObject) -> None:
    """A changed word gives another state, or the line is unread: never a line that is not there."""
    text, _ = BASE[platform]
    kind = PLATFORMS[platform]
    rows = text.splitlines()
    at = data.draw(st.sampled_from([n for n, row in enumerate(rows) if row.startswith("  ")]))
    words = rows[at].split()
    where = data.draw(st.integers(0, len(words) - 1))
    new = data.draw(st.sampled_from(WORDS))
    if words[where] == new:
        return
    indent = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    changed = " ".join([*words[:where], new, *words[where + 1 :]])
    mutated = "\n".join([*rows[:at], indent + changed, *rows[at + 1 :]]) + "\n"
    was, found = kind.read(text), kind.read(mutated)
    assert not [place for place in was if place.kind == UNREAD]
    unread = [place for place in found if place.kind == UNREAD]
    assert unread or dict(found) != dict(was)
    assert counts(found)[1] == counts(was)[1]
