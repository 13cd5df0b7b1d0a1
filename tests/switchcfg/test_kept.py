"""Ports that carry somebody else's profile, on platforms that are told by command lines."""

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import plan
from switchcfg.plan.state import Place, after
from switchcfg.platforms.known import PLATFORMS

PORTS = {"eos": "Ethernet1", "nxos": "Ethernet1/1", "nvue": "swp1", "junos": "et-0/0/0"}
# A port that serves RoCE: flow control on priority 3, ECN on its queue (vendors' RoCE guides).
ROCE = {
    "eos": """\
qos map dscp 26 to traffic-class 3
qos map dscp 48 to traffic-class 6
!
qos profile ROCE
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
   uc-tx-queue 3
      no priority
!
interface Ethernet1
   service-profile ROCE
""",
    "nxos": """\
policy-map type queuing ROCE-OUT
  class type queuing c-out-8q-q3
    bandwidth remaining percent 50
interface Ethernet1/1
  priority-flow-control mode on
  service-policy type qos input ROCE-IN
  service-policy type queuing output ROCE-OUT
""",
    "nvue": """\
nv set qos congestion-control ROCE traffic-class 3 ecn enable
nv set interface swp1 qos congestion-control profile ROCE
nv set interface swp1 qos pfc profile ROCE
""",
    "junos": """\
set class-of-service interfaces et-0/0/0 scheduler-map ROCE
set class-of-service interfaces et-0/0/0 congestion-notification-profile ROCE
set class-of-service interfaces et-0/0/0 unit 0 classifiers dscp ROCE
""",
}


def wanted(platform: str, keep: str, classes: str = "") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}{classes}[[device]]\nname = "leaf"\n'
        f'platform = "{platform}"\n[[device.ports]]\nnames = ["{PORTS[platform]}"]\n'
        'rate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def refusal(platform: str, keep: str, text: str) -> str:
    kind = PLATFORMS[platform]
    with pytest.raises(Refused) as caught:
        plan(*wanted(platform, keep), kind, kind.read(text))
    return str(caught.value)


@pytest.mark.parametrize("platform", ROCE)
def test_a_port_with_a_profile_of_others_is_refused(platform: str) -> None:
    said = refusal(platform, "[keep]\nqueues = [3]\n", ROCE[platform])
    assert f"kept: {PORTS[platform]} has 'ROCE" in said
    assert "[keep] replaces" in said


@pytest.mark.parametrize("platform", ["nxos", "nvue", "junos"])
def test_a_profile_that_the_intent_names_is_replaced(platform: str) -> None:
    kind = PLATFORMS[platform]
    keep = '[keep]\nqueues = [3]\nreplaces = ["ROCE", "ROCE-IN", "ROCE-OUT"]\n'
    present = kind.read(ROCE[platform])
    made = plan(*wanted(platform, keep), kind, present)
    assert made.changes
    # Once it is ours it is no more asked about.
    again = plan(*wanted(platform, "[keep]\nqueues = [3]\n"), kind, after(present, made.changes))
    assert not again.changes


def test_flow_control_on_a_queue_that_is_not_kept_is_refused() -> None:
    keep = '[keep]\nreplaces = ["ROCE"]\n'
    assert "lossless: Ethernet1 queue 3 has PFC: name it" in refusal("eos", keep, ROCE["eos"])
    on_port = "interface Ethernet1\n   priority-flow-control priority 4 no-drop\n"
    assert "lossless: Ethernet1 queue 4 has PFC" in refusal("eos", "", on_port)


@pytest.mark.parametrize(
    ("platform", "line"),
    [
        ("eos", "qos map dscp 26 34 to traffic-class 3\n"),
        ("nvue", "nv set qos mapping default-global dscp 26 switch-priority 3\n"),
    ],
)
def test_a_code_point_of_a_kept_queue_may_not_be_a_class_of_ours(platform: str, line: str) -> None:
    said = refusal(platform, "[keep]\nqueues = [3]\n", line)
    point = {"eos": 34, "nvue": 26}[platform]
    assert f"kept-dscp: leaf: code point {point} goes to queue 3 today, which is kept" in said


@pytest.mark.parametrize(
    ("platform", "line"),
    [
        ("eos", "qos map dscp 3 to traffic-class 3\ninterface Ethernet1\n"),
        ("nvue", "nv set qos mapping default-global dscp 3 switch-priority 3\n"),
    ],
)
def test_other_code_points_of_a_kept_queue_stay(platform: str, line: str) -> None:
    kind = PLATFORMS[platform]
    present = kind.read(line)
    made = plan(*wanted(platform, "[keep]\nqueues = [3]\n"), kind, present)
    point = Place(kind.points, "3", "")  # type: ignore[attr-defined]
    assert point in present
    assert point not in {change.place for change in made.changes}


def test_a_kept_queue_behind_another_traffic_class_is_refused() -> None:
    lines = "qos map dscp 3 to traffic-class 2\nqos map traffic-class 2 to tx-queue 3\n"
    assert "kept-tc: leaf: code point 3" in refusal("eos", "[keep]\nqueues = [3]\n", lines)
