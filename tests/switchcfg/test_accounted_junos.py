"""Each line near QoS is read, of no matter, or refused: Junos.

Lines are of Juniper's pages "class-of-service (Configuration)" and of its statements, "Default DSCP
and DSCP IPv6 Classifiers", "classifiers (Definition)", "rewrite-rules (Interfaces)", "schedulers",
"Firewall Filter Nonterminating Actions", "flow-control", "interface-range", "Understanding
Configuration Groups".
"""

from typing import Final

import pytest

from switchcfg.cli import adopt
from switchcfg.errors import Refused
from switchcfg.plan.account import counts
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import Place, after
from switchcfg.plan.text import lines
from tests.switchcfg.cli_device import JunosLines
from tests.switchcfg.test_junos import JUNOS, KEEP, PORT, ROCE, intent, planned, refusal

COS: Final = "class-of-service"
CNP: Final = f"set {COS} congestion-notification-profile cnp"
CLASSIFIER: Final = f"{COS} classifiers dscp mydscp"
FEEDS: Final = "set firewall family inet filter MF term a then forwarding-class NO-LOSS\n"


def test_a_switch_with_roce_is_read_whole() -> None:
    made = planned(ROCE, intent(KEEP))[1]
    assert made.read[0] == made.read[1] == len(ROCE.splitlines())
    assert f"  read {made.read[0]} of {made.read[1]} QoS lines" in [*lines(made)]


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        (f"{COS} interfaces {PORT} unit 0 rewrite-rules dscp rw1", PORT),
        (f"{COS} interfaces {PORT} unit 5 rewrite-rules dscp-ipv6 rw1", PORT),
        (f"{COS} interfaces {PORT} rewrite-rules ieee-802.1 rw1", PORT),
        (f"{COS} interfaces {PORT} unit 0 rewrite-rules exp rw1 protocol mpls-inet-both", PORT),
        (f"{COS} interfaces {PORT} unit 0 translation-table to-dscp-from-dscp T", PORT),
        (f"{COS} interfaces {PORT} unit 0 classifiers inet-precedence P", PORT),
        (f"{COS} interfaces {PORT} unit 0 scheduler-map sm9", PORT),
        (f"{COS} interfaces {PORT} unit 0 forwarding-class-map F", PORT),
        (f"{COS} interfaces {PORT} input-scheduler-map sm9", PORT),
        (f"{COS} interfaces {PORT} frobnicate 7", PORT),
        (f"{COS} schedulers s1 frobnicate 7", "scheduler s1"),
        (f"{COS} drop-profiles dp1 curve 9", "drop-profile dp1"),
        (f"{COS} scheduler-maps sm1 default x", "scheduler-map sm1"),
        (f"{CLASSIFIER} default 7", "classifier dscp mydscp"),
        (f"{CLASSIFIER} forwarding-class CNP loss-priority low code-points video",
         "classifier dscp mydscp"),
        (f"{COS} congestion-notification-profile cnp input dscp code-point 001010 frobnicate",
         "congestion-notification-profile cnp"),
        (f"{COS} congestion-notification-profile cnp output ieee-802.1 code-point be1 "
         "flow-control-queue 4", "congestion-notification-profile cnp"),
        (f"{COS} forwarding-classes class CNP frobnicate 9", "leaf"),
        (f"{COS} forwarding-policy class CNP classification-override forwarding-class X", "leaf"),
        (f"{COS} system-defaults classifiers dscp X", "leaf"),
        (f"interfaces {PORT} ether-options flow-control", PORT),
        (f"interfaces {PORT} gigether-options flow-control", PORT),
        (f"interfaces {PORT} ether-options configured-flow-control rx-buffers on", PORT),
        (f"interfaces {PORT} hierarchical-scheduler", PORT),
        (f"interfaces {PORT} per-unit-scheduler", PORT),
        (f"interfaces {PORT} unit 0 family inet policer input P", PORT),
        (f"interfaces {PORT} layer2-policer input-policer P", PORT),
        ("interfaces interface-range R ether-options flow-control", "interface-range R"),
        (f"switch-options voip interface {PORT} forwarding-class CNP", PORT),
    ],
)  # fmt: skip
def test_a_line_that_is_not_known_is_refused_by_itself(line: str, owner: str) -> None:
    assert f'unread: {owner}: "set {line}": ' in refusal(f"{ROCE}set {line}\n", intent(KEEP))
    far = f"{ROCE}set {line}\n".replace(PORT, "et-0/0/9")
    if owner not in ("leaf", "interface-range R"):
        made = planned(far, intent(KEEP))[1]
        assert made.read[0] == made.read[1] - 1


@pytest.mark.parametrize(
    "line",
    [
        f"interfaces {PORT} description flow-control-to-leaf",
        f"interfaces {PORT} mtu 9216",
        f"interfaces {PORT} ether-options no-flow-control",
        f"interfaces {PORT} unit 0 family inet address 192.0.2.1/31",
        f"interfaces {PORT} unit 0 family ethernet-switching vlan members all",
        f"interfaces interface-range R member {PORT}",
        f"{COS} interfaces {PORT} shaping-rate 40g",
        f"{COS} interfaces {PORT} unit 0 rewrite-rules exp rw1",
        f"{COS} interfaces {PORT} unit 5 classifiers dscp mydscp",
        f"{COS} rewrite-rules dscp rw1 forwarding-class CNP loss-priority low code-point 110000",
        f"{COS} traffic-control-profiles tcp1 scheduler-map sm9",
        f"{COS} schedulers s1 shaping-rate 10g",
        f"{COS} schedulers s1 buffer-size remainder",
        f"{COS} schedulers s1 transmit-rate percent 5 exact",
        f"{COS} host-outbound-traffic forwarding-class network-control",
        f"{COS} apply-groups-except OLD",
        "firewall family inet filter OTHER term a then dscp 0",
        "system host-name leaf",
    ],
)
def test_what_chooses_no_queue_is_of_no_matter(line: str) -> None:
    made = planned(f"{ROCE}set {line}\n", intent(KEEP))[1]
    assert made.changes
    assert made.read[0] + 1 >= made.read[1]


@pytest.mark.parametrize(
    "bound",
    [
        f"interfaces {PORT} unit 0 family inet filter input MF",
        f"interfaces {PORT} unit 0 family inet filter output MF",
        f"interfaces {PORT} unit 0 family inet filter input-list [ A MF ]",
        "vlans V forwarding-options filter input MF",
        "forwarding-options family inet filter input MF",
    ],
)
@pytest.mark.parametrize("what", ["forwarding-class NO-LOSS", "dscp 0", "policer P"])
def test_a_filter_that_classifies_is_refused_where_it_is_bound(bound: str, what: str) -> None:
    line = f"firewall family inet filter MF term a then {what}"
    text = f"{ROCE}set {line}\nset {bound}\n"
    assert f'unread: filter MF: "set {line}": ' in refusal(text, intent(KEEP))
    allowed = text.replace(f"then {what}", "then accept")
    assert planned(allowed, intent(KEEP))[1].changes


# --- classifiers -----------------------------------------------------------------------


def test_what_a_classifier_imports_is_kept() -> None:
    base = ROCE.replace("dscp mydscp", "dscp base").replace(
        f"{PORT} unit 0 classifiers dscp base", f"{PORT} unit 0 classifiers dscp mydscp"
    )
    text = f"{base}set {CLASSIFIER} import base\n"
    own = f"set {CLASSIFIER} forwarding-class best-effort loss-priority high code-points 011100\n"
    present, made = planned(text + own, intent(KEEP))
    then = after(present, made.changes)
    assert Place("classifier", "DLCP|NO-LOSS|low|011010", "") in then
    assert Place("classifier", "DLCP|NO-LOSS|low|011100", "") not in then  # its own line counts
    circle = f"{text}set {COS} classifiers dscp base import mydscp\n"
    assert planned(circle, intent(KEEP))[1].changes


@pytest.mark.parametrize(
    "text",
    [
        f"{ROCE}set {CLASSIFIER} import default\n".replace("111000", "x"),
        ROCE.replace("unit 0 classifiers dscp mydscp", "unit 0 classifiers dscp default"),
    ],
)
def test_built_in_code_points_are_refused_where_the_chip_decides_their_queue(text: str) -> None:
    keep = KEEP.replace('"sm1"', '"sm1", "default"')
    said = refusal(text, intent(keep))
    assert f"kept-dscp: {PORT}: code point" in said
    assert "to the built-in class network-control, on queue 3 of some chips, which is kept" in said
    named = f"{text}set {COS} forwarding-classes class network-control queue-num 7\n"
    assert planned(named, intent(keep))[1].changes


def test_built_in_code_points_of_a_kept_queue_stay_there() -> None:
    text = f"{ROCE}set {CLASSIFIER} import default\n"
    text += f"set {COS} forwarding-classes class network-control queue-num 3\n"
    present, made = planned(text, intent(KEEP))
    then = after(present, made.changes)
    assert Place("classifier", "DLCP|network-control|low|111000", "") in then


@pytest.mark.parametrize(
    "lines_",
    [
        f"set {COS} interfaces {PORT} unit 0 classifiers ieee-802.1 vlan\n"
        f"set {COS} classifiers ieee-802.1 vlan forwarding-class NO-LOSS loss-priority low "
        "code-points 011\n",
        f"set {COS} interfaces {PORT} unit * classifiers ieee-802.1 default\n",
        f"set {COS} interfaces {PORT} classifiers ieee-802.1 vlan\n"
        f"set {COS} classifiers ieee-802.1 vlan import default\n",
        f"{CNP} input ieee-802.1 code-point 011 pfc\n",
    ],
)
def test_a_kept_queue_that_vlan_priority_feeds_is_refused(lines_: str) -> None:
    bound = f"set {COS} interfaces {PORT} unit 0 classifiers dscp mydscp\n"
    said = refusal(ROCE.replace(bound, "") + lines_, intent(KEEP))
    assert f"kept-pcp: {PORT}: VLAN priority" in said
    assert planned(ROCE + lines_, intent(KEEP))[1].changes  # packets go by their code points
    elsewhere = lines_.replace("NO-LOSS", "best-effort")
    if elsewhere != lines_:
        assert planned(ROCE.replace(bound, "") + elsewhere, intent(KEEP))[1].changes


# --- groups, inactive lines ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("interfaces <et-*> ether-options flow-control", True),
        ("interfaces <et-*> unit 0 family inet filter input MF", True),
        ("firewall family inet filter MF term a then forwarding-class X", True),
        ("<*> <*> scheduler-map theirs", True),
        ("forwarding-options enhanced-hash-key ecmp-dlb flowlet", True),
        ("interfaces <et-*> mtu 9216", False),
        ("system services netconf ssh", False),
        ("firewall family inet filter MF term a then accept", False),
    ],
)
def test_a_group_is_refused_by_name_where_it_has_more_than_lines_of_no_matter(
    line: str, refused: bool
) -> None:
    text = f"set groups G {line}\nset apply-groups G\n"
    if refused:
        first = line.split(maxsplit=1)[0]
        assert f"groups: `set groups G {first} ...` is applied" in refusal(text, intent())
    else:
        assert planned(text, intent())[1].changes
    for off in ("deactivate apply-groups\n", "deactivate apply-groups G\n", "deactivate groups\n"):
        assert planned(text + off, intent())[1].changes


def test_an_inactive_filter_is_not_bound() -> None:
    bind = f"set interfaces {PORT} unit 0 family inet filter input MF\n"
    off = f"deactivate interfaces {PORT} unit 0 family inet filter\n"
    assert "unread: filter MF" in refusal(ROCE + FEEDS + bind, intent(KEEP))
    assert planned(ROCE + FEEDS + bind + off, intent(KEEP))[1].changes


# --- objects of switchcfg ------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"{COS} schedulers DLCP-Q6 shaping-rate 1g",
        f"{COS} schedulers DLCP-Q6 buffer-size remainder",
        f"{COS} schedulers DLCP-Q6 drop-profile-map loss-priority any protocol tcp "
        "drop-profile dp1",
        f"{COS} classifiers dscp DLCP import base",
        f"{COS} drop-profiles DLCP-20-50 fill-level 50 drop-probability 9",
    ],
)
def test_a_line_that_was_added_to_an_object_of_switchcfg_goes(line: str) -> None:
    device = JunosLines()
    for step in planned("", intent())[1].steps:
        device.do(step.payload)
    was = set(device.have)
    if line.endswith("remainder"):  # a scheduler has one size
        device.have.remove(line.replace("remainder", "percent 50"))
    device.have.add(line)
    again = planned(device.says(), intent())[1]
    for step in again.steps:
        device.do(step.payload)
    assert device.have == was


def test_a_line_that_is_not_known_in_an_object_of_switchcfg_stops_a_removal() -> None:
    device = JunosLines()
    for step in planned("", intent())[1].steps:
        device.do(step.payload)
    device.have.add(f"{COS} schedulers DLCP-Q6 frobnicate 9")
    present = JUNOS.read(device.says())
    assert counts(present)[0] == counts(present)[1] - 1
    with pytest.raises(Refused, match=r"unread: scheduler DLCP-Q6: .*frobnicate"):
        removal(*intent(), JUNOS, present)
    with pytest.raises(Refused, match=r"unread: scheduler DLCP-Q6: .*frobnicate"):
        plan(*intent(), JUNOS, present)


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        (f"{CNP} input cable-length 300\n", "with a cable length of 300 m"),
        (f"{CNP} input dscp code-point 011010 mru 9216\n", "with mru 9216 for code point 011010"),
        (f"{CNP} input dscp code-point 011010 pfc mru 8000\n", "with mru 8000 for code point"),
        (f"{CNP} input ieee-802.1 code-point 011 xon 9\n", "with xon 9 for code point 011"),
    ],
)
def test_what_the_headroom_of_a_replaced_profile_is_made_of_is_seen(line: str, lost: str) -> None:
    roce = '[[lossless]]\nname = "roce"\npriority = 4\ndscp = [26, 28]\nshare = 9\n'
    keep = KEEP.replace("3, 4", "3").replace('"sm1"', '"sm1", "cnp"')
    assert lost in refusal(ROCE + line, intent(keep, queues=roce))


def test_flow_control_that_is_printed_with_its_frames_is_seen() -> None:
    """`display set` prints `pfc mru 9216`, and no line `pfc` beside it."""
    bare = f"{CNP} input dscp code-point 011010 pfc\n"
    assert bare in ROCE
    alone = ROCE.replace(bare, bare.replace("pfc\n", "pfc mru 9216\n"))
    present = JUNOS.read(alone)
    assert counts(present)[0] == counts(present)[1]
    assert plan(*intent(KEEP), JUNOS, present).changes
    lossless = '[[lossless]]\nname = "roce"\npriority = 4\ndscp = [28]\nshare = 9\n'
    keep = KEEP.replace("3, 4", "3").replace('"sm1"', '"sm1", "cnp"')
    assert "which pauses" in refusal(alone, intent(keep, queues=lossless))


def test_import_lists_lines_that_are_not_understood() -> None:
    text = f"{ROCE}set {COS} schedulers s1 frobnicate 7\n"
    asked = adopt.Asked("leaf", "junos", "", (PORT,), 0)
    said = adopt.intent(asked, JUNOS.read(text))
    assert "Lines that switchcfg does not understand" in said
    assert "frobnicate 7" in said
