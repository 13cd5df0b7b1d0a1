"""Each leaf near QoS is read, of no matter, or refused: OpenConfig.

Leaves are of openconfig-qos 2.2.0 (its submodules elements, interfaces and mem-mgmt), of
openconfig-packet-match, and of featureprofiles: "DP-1.2: QoS policy feature config", "DP-2.2: QoS
scheduler with 1 rate 2 color policer", "QoS ECN config".
"""

import json
from typing import Any, Final

import pytest

from switchcfg.errors import Refused
from switchcfg.plan.account import UNREAD, counts
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import Place, after
from switchcfg.plan.text import lines
from tests.switchcfg.golden import DEVICES, on_every_platform
from tests.switchcfg.test_openconfig import (
    CAPTURED,
    KEEP,
    OC,
    captured,
    intent,
    planned,
    qos,
    refusal,
)

CLASSIFIER: Final = "dscp_based_classifier_ipv4"
FREE: Final = KEEP.replace("[3]", "[]")  # `scheduler` serves no kept queue


def put(document: Any, path: str, value: Any) -> Any:
    """The document with a leaf; a part of the path is a member, or `N` of a list."""
    at = document["openconfig-qos:qos"]
    *parts, last = path.split("/")
    for part in parts:
        if isinstance(at, list):
            at = at[int(part)]
            continue
        name = next((each for each in at if each.rpartition(":")[2] == part), part)
        at = at.setdefault(name, {})
    at[last] = value
    return document


def test_a_device_with_foreign_qos_is_read_whole() -> None:
    made = planned(CAPTURED, intent(KEEP))[1]
    assert made.read[0] == made.read[1] > 30
    assert f"  read {made.read[0]} of {made.read[1]} QoS lines" in [*lines(made)]


PORT: Final = "interfaces/interface/0"
TERM: Final = "classifiers/classifier/0/terms/term/1"
SCHEDULER: Final = "scheduler-policies/scheduler-policy/0/schedulers/scheduler/0"


@pytest.mark.parametrize(
    ("path", "value", "owner", "why"),
    [
        (f"{PORT}/config/frobnicate", 7, "eth1", "not understood"),
        (f"{PORT}/input/config/qos-group", 7, "eth1", "not understood"),
        (f"{PORT}/arista-qos:extra", True, "eth1", "of a vendor's module"),
        (f"{PORT}/config/arista-qos:trust", "COS", "eth1", "of a vendor's module"),
        (f"{PORT}/output/queues/queue/0/config", {"name": "NC1", "depth": 9}, "eth1", "not under"),
        (f"{PORT}/output/scheduler-policy/config/weight", 9, "eth1", "not understood"),
        (f"{PORT}/input/scheduler-policy/config/name", "P", "eth1", "a policer can drop"),
        (f"{TERM}/conditions/ipv4/config/source-address", "192.0.2.0/24",
         f"classifier {CLASSIFIER}", "not understood"),
        (f"{TERM}/conditions/l2/config/ethertype", 2048, f"classifier {CLASSIFIER}", "not under"),
        (f"{TERM}/conditions/transport/config/destination-port", 4791,
         f"classifier {CLASSIFIER}", "not understood"),
        (f"{TERM}/conditions/next-hop-group/config/name", "nhg", f"classifier {CLASSIFIER}", "not"),
        (f"{TERM}/conditions/ipv4/config/dscp-set", ["24..27"], f"classifier {CLASSIFIER}", "not"),
        (f"{TERM}/actions/remark/config/set-dscp", 0, f"classifier {CLASSIFIER}", "rewrites code"),
        (f"{TERM}/actions/config/frobnicate", 0, f"classifier {CLASSIFIER}", "not understood"),
        (f"{SCHEDULER}/two-rate-three-color/exceed-action/config/set-dscp", 8,
         "scheduler-policy scheduler", "rewrites code points"),
        (f"{SCHEDULER}/config/frobnicate", 8, "scheduler-policy scheduler", "not understood"),
        ("queues/queue/1/config/priority", 8, "queue RDMA", "not understood"),
        ("forwarding-groups/forwarding-group/1/config/drop", True,
         "forwarding-group target-group-RDMA", "not understood"),
        ("config/trust", "PCP", "leaf", "not understood"),
        ("rewrites/rewrite/config/dscp", 0, "leaf", "not understood"),
    ],
)  # fmt: skip
def test_a_leaf_that_is_not_known_is_refused_by_itself(
    path: str, value: Any, owner: str, why: str
) -> None:
    document = put(captured(), path, value)
    said = refusal(document, intent(KEEP))
    assert f'unread: {owner}: "' in said
    assert f'": {why}' in said
    leaf = f"{path.rpartition('/')[2]}" if not isinstance(value, dict) else "depth"
    assert leaf in said
    if owner != "leaf":
        made = planned(json.dumps(document), intent(KEEP, port="eth3"))[1]
        assert made.read[0] == made.read[1] - 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{PORT}/output/config/multicast-buffer-allocation-profile", "M"),
        (f"{PORT}/state/frobnicate", 7),
        (f"{TERM}/conditions/mpls/config/traffic-class", 3),
        ("buffer-allocation-profiles/buffer-allocation-profile",
         [{"name": "b", "config": {"name": "b", "static-shared-buffer-limit": 9}}]),
        ("queues/queue/1/state/arista-qos-augments:extra", 7),
        (f"{SCHEDULER}/one-rate-two-color/config/cir", "9"),
        (f"{SCHEDULER}/two-rate-three-color/config/pir-pct", 9),
        (f"{SCHEDULER}/output/config/output-type", "INTERFACE"),
        ("forwarding-groups/forwarding-group/0/config/fabric-priority", 2),
    ],
)  # fmt: skip
def test_leaves_that_a_plan_does_not_change_are_of_no_matter(path: str, value: Any) -> None:
    made = planned(json.dumps(put(captured(), path, value)), intent(KEEP))[1]
    assert made.changes
    assert made.read[0] == made.read[1]


def test_a_term_for_all_packets_of_a_kept_queue_is_refused() -> None:
    document = captured()
    [classifier] = qos(document, "classifiers")
    terms = classifier["openconfig-qos:terms"]["openconfig-qos:term"]
    del terms[1]["openconfig-qos:conditions"]
    said = refusal(document, intent(KEEP))
    assert f"'{CLASSIFIER}' sends all packets of '{CLASSIFIER}|3' to queue 'RDMA'" in said


def test_a_foreign_leaf_of_an_object_of_switchcfg_goes_or_is_refused() -> None:
    wanted = (on_every_platform("minimal"), DEVICES["openconfig"])
    first = plan(*wanted, OC, {})
    own = json.loads(OC.write(after({}, first.changes)))
    policy = own["openconfig-qos:qos"]["scheduler-policies"]["scheduler-policy"][0]
    scheduler = policy["schedulers"]["scheduler"][0]
    scheduler["two-rate-three-color"] = {"config": {"pir": "1000"}}
    present = OC.read(json.dumps(own))
    place = Place("scheduler-two-rate", f"{policy['name']}|1", "pir")
    made = plan(*wanted, OC, present)
    assert [change.place for change in made.changes] == [place]
    assert "/two-rate-three-color" in json.loads(made.steps[0].payload)["delete"][0]
    scheduler["config"]["frobnicate"] = 1
    present = OC.read(json.dumps(own))
    assert counts(present)[0] == counts(present)[1] - 1
    for how in (plan, removal):
        with pytest.raises(Refused, match=r"unread: scheduler-policy DLCP: .*frobnicate"):
            how(*wanted, OC, present)


def test_a_removal_leaves_what_a_vendor_added_to_the_interface() -> None:
    wanted = (on_every_platform("minimal"), DEVICES["openconfig"])
    own = json.loads(OC.write(after({}, plan(*wanted, OC, {}).changes)))
    port = own["openconfig-qos:qos"]["interfaces"]["interface"][0]
    port["arista-qos:extra"] = 7
    present = OC.read(json.dumps(own))
    assert [place.name for place in present if place.kind == UNREAD] == [port["interface-id"]]
    deletes = json.loads(removal(*wanted, OC, present).steps[0].payload)["delete"]
    assert not [each for each in deletes if each.endswith(f"[interface-id={port['interface-id']}]")]


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"acme-qos:pfc": {"priority": [{"id": 3, "enabled": True}]}}, "acme-qos:pfc/priority"),
        ({"acme-qos:scheduling": "strict"}, 'acme-qos:scheduling strict": of a vendor'),
        ({"openconfig-qos:shaping": {"rate": "9"}}, 'shaping/rate 9": not understood'),
    ],
)
def test_a_part_of_the_whole_tree_that_is_not_known_is_refused(
    where: dict[str, Any], says: str
) -> None:
    document = json.loads(CAPTURED)
    document["openconfig-qos:qos"] |= where
    said = refusal(document, intent(KEEP))
    assert "unread: " in said
    assert says in said
