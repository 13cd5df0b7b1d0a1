"""Faults planted into each platform's writer: the model of the switch finds them."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from switchcfg.errors import Refused
from switchcfg.model.known import MODELS
from switchcfg.model.values import differences
from switchcfg.plan.plan import plan
from switchcfg.plan.state import Change, State
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Step
from tests.switchcfg.accounted import PORTS, wanted
from tests.switchcfg.linux_device import LinuxDevice
from tests.switchcfg.stock import sonic_roce
from tests.switchcfg.test_model_alone import nxos

EOS: Final = """\
hostname leaf
qos map dscp 24 to traffic-class 3
qos map traffic-class 3 to tx-queue 3
interface Ethernet1/1
   no switchport
   priority-flow-control on
   priority-flow-control priority 3 no-drop
interface Ethernet2/1
"""
NXOS: Final = nxos("bandwidth remaining percent 50\n    queue-limit 100 kbytes")
NVUE: Final = """\
nv set interface swp1-2 type swp
nv set interface swp1 qos pfc profile ROCE
nv set interface swp1-2 qos congestion-control profile MARKS
nv set qos congestion-control MARKS traffic-class 3 ecn enable
nv set qos congestion-control MARKS traffic-class 3 max-threshold 200000
nv set qos egress-scheduler default-global traffic-class 3 bw-percent 50
nv set qos egress-scheduler default-global traffic-class 3 mode dwrr
nv set qos mapping default-global dscp 3,24-25 switch-priority 3
nv set qos mapping default-global trust l3
nv set qos pfc ROCE switch-priority 3
"""
CAPTURED: Final = Path(__file__).parent / "captured"
JUNOS: Final = (CAPTURED / "junos_roce.txt").read_text(encoding="utf-8")
OPENCONFIG: Final = (CAPTURED / "openconfig.json").read_text(encoding="utf-8")
# Platform -> (what a switch with RoCE has, its [keep])
KEPT: Final = {
    "sonic": (json.dumps(sonic_roce(PORTS["sonic"])), "queues = [3, 4]"),
    "eos": (EOS, "queues = [3]"),
    "nxos": (NXOS, 'queues = [3]\nreplaces = ["CLASSIFY", "OUT"]\n[keep.dscp]\n24 = 3'),
    "junos": (
        JUNOS.replace("110000", "111000"),  # 48 is ours
        'queues = [3, 4]\nreplaces = ["sm1", "mydscp"]',
    ),
    "linux": (LinuxDevice(("p1", "p2", "p3")).says(), "queues = [3]"),
    "openconfig": (
        OPENCONFIG,
        'queues = [3]\nreplaces = ["dscp_based_classifier_ipv4", "scheduler"]',
    ),
    "nvue": (NVUE, 'queues = [3]\nreplaces = ["MARKS"]'),
}
# A kept code point, if it is not 24 on the first port; on Linux, other ports are kept
KEEPS: Final = {
    "sonic": ("Ethernet0", "DSCP 3"),
    "junos": ("et-0/0/0", "DSCP 26"),
    "openconfig": ("eth1", "DSCP 26"),
    "linux": ("p3", "DSCP 24"),
}
# (platform, what the writer writes, what it writes with the fault)
FAULTS: Final = (
    ("sonic", r'"3": "3"', '"3": "2"'),  # wrong queue
    ("sonic", r'"4": "4",', ""),  # lost entry of a map
    ("sonic", r"/QUEUE/Ethernet0\|5/", "/QUEUE/Ethernet0|3/"),  # another queue's scheduler
    ("sonic", r'"/BUFFER_QUEUE/Ethernet4\|5"', '"/BUFFER_QUEUE/Ethernet4|4"'),  # its buffer
    ("sonic", r'"op": "replace",\n    "path": "/PORT_QOS_MAP/Ethernet0/dscp_to_tc_map",\n    '
     r'"value": "DLCP"',
     '"op": "replace", "path": "/PORT_QOS_MAP/Ethernet0/pfc_enable", "value": "4"'),  # PFC bit
    ("sonic", r'"path": "/TC_TO_QUEUE_MAP/DLCP"', '"path": "/TC_TO_QUEUE_MAP/AZURE"'),
    ("sonic", r'"path": "/SCHEDULER/DLCP_STRICT"', '"path": "/SCHEDULER/scheduler.1"'),  # weight
    ("eos", r"qos map dscp 14 ", "qos map dscp 24 "),  # wrong code point
    ("eos", r"qos profile DLCP\n", "qos map traffic-class 3 to tx-queue 2\nqos profile DLCP\n"),
    ("eos", r"   uc-tx-queue 5\n", "   uc-tx-queue 3\n"),  # curves of another queue
    ("eos", r"   qos trust dscp\n", "   qos trust cos\n"),
    ("eos", r"   service-profile DLCP\n", "   service-profile DLCP\n   no priority-flow-control\n"),
    ("eos", r"   qos trust dscp\n", "   qos trust dscp\n   shape rate 50 gbps\n"),
    ("nxos", r"match dscp 24\n", "match dscp 25\n"),  # lost code point
    ("nxos", r"set qos-group 3\n", "set qos-group 2\n"),
    ("nxos", r"bandwidth remaining percent 50\n", "bandwidth remaining percent 20\n"),
    ("nxos", r"    queue-limit 100000 bytes\n", ""),
    ("nxos", r"(  service-policy type qos input DLCP\n)",
     "  priority-flow-control mode off\n  service-policy type qos input DLCP\n"),
    ("nxos", r"    set qos-group 3\n", "    set qos-group 3\n    set dscp 0\n"),  # rewrites
    ("junos", r"NO-LOSS (loss-priority low code-points 011010)",
     "CNP loss-priority low code-points 011010"),  # code point
    ("junos", r"DLCP forwarding-class NO-LOSS scheduler s1",
     "DLCP forwarding-class NO-LOSS scheduler s2-cnp"),  # share and mark
    ("junos", r"set class-of-service scheduler-maps DLCP forwarding-class NO-LOSS [^\n]*\n", ""),
    ("junos", r"class DLCP-Q7 queue-num 7\n",
     "class DLCP-Q7 queue-num 7\n"
     "set class-of-service forwarding-classes class NO-LOSS queue-num 5\n"),  # queue
    ("linux", r"dev p1 root", "dev p3 root"),  # another port
    ("linux", r"chain p1 {", "chain p3 {"),
    ("openconfig", r"\n( +)26,", "\n 25,"),  # code point
    ("openconfig", r'"target-group": "target-group-RDMA"', '"target-group": "DLCP-Q5"'),
    ("openconfig", r"output/queues/queue\[name=DLCP-Q5\]", "output/queues/queue[name=RDMA]"),
    ("nvue", r"dscp 48 switch-priority 7\n", "dscp 24 switch-priority 7\n"),  # code point
    ("nvue", r"switch-priority 7 traffic-class 7\n", "switch-priority 3 traffic-class 7\n"),
    ("nvue", r"DLCP traffic-class 3 ecn enable", "DLCP traffic-class 2 ecn enable"),  # lost mark
    ("nvue", r"traffic-class 5 mode strict", "traffic-class 3 mode strict"),  # changed rank
    ("nvue", r"(nv set interface swp1 qos congestion-control profile DLCP)",
     "nv unset interface swp1 qos pfc profile ROCE\n"),  # PFC
)  # fmt: skip


def test_every_platform_has_a_model_and_a_fault() -> None:
    assert {each[0] for each in FAULTS} == set(KEPT) == set(MODELS)


@pytest.mark.parametrize("platform", KEPT)
def test_a_plan_changes_no_kept_code_point(platform: str) -> None:
    text, keep = KEPT[platform]
    kind, model = PLATFORMS[platform], MODELS[platform]
    made = plan(*wanted(platform, keep), kind, kind.read(text))
    before, after = model(text, ()), model(text, [step.payload for step in made.steps])
    changed = {(each.port, str(each.point)) for each in differences(before, after)}
    port = PORTS[platform][0]
    assert (port, "DSCP 48") in changed  # of the first class
    kept = KEEPS.get(platform, (port, "DSCP 24"))
    assert kept[0] in before.ports
    assert kept not in changed


@pytest.mark.parametrize(("platform", "shape", "fault"), FAULTS)
def test_a_fault_of_a_writer_is_found(
    platform: str, shape: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, keep = KEPT[platform]
    kind = PLATFORMS[platform]
    steps, planted = kind.steps, list[str]()

    def faulty(present: State, changes: Sequence[Change]) -> list[Step]:
        out = []
        for step in steps(present, changes):
            payload, count = re.subn(shape, lambda _: fault, step.payload)
            planted.extend([step.title] * count)
            out.append(replace(step, payload=payload))
        return out

    monkeypatch.setattr(type(kind), "steps", lambda _, *given: faulty(*given))
    with pytest.raises(Refused, match="kept-treatment"):
        plan(*wanted(platform, keep), kind, kind.read(text))
    assert planted
