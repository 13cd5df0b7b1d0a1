"""What devices of OpenConfig answer, and ours beside what others have there."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal
from switchcfg.plan.state import Place, State, after
from switchcfg.platforms.openconfig.platform import OpenConfig
from switchcfg.platforms.openconfig.tree import OTHER, tree
from tests.switchcfg.golden import DEVICES, on_every_platform, taken
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_platforms import Tree

OC = OpenConfig()
CAPTURED: Final = (Path(__file__).parent / "captured" / "openconfig.json").read_text("utf-8")
MODELS: Final = os.environ.get("OPENCONFIG_YANG_MODELS", "")
CLASSES: Final = """\
[classes]
front = { rank = 0, dscp = [34, 38], ecn = ["ect0", "not-ect"] }
back = { rank = 1, dscp = [10], ecn = ["ect0"] }
"""
KEEP: Final = '[keep]\nqueues = [3]\nreplaces = ["dscp_based_classifier_ipv4", "scheduler"]\n'


def intent(keep: str = "", port: str = "eth1", classes: str = CLASSES) -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}{classes}[[device]]\nname = "leaf"\n'
        f'platform = "openconfig"\n[[device.ports]]\nnames = ["{port}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def captured() -> Any:
    return json.loads(CAPTURED)


def qos(document: Any, name: str) -> Any:
    """The rows of a list at the top."""
    [rows] = document["openconfig-qos:qos"][f"openconfig-qos:{name}"].values()
    return rows


def planned(text: str, wanted: tuple[Intent, Device]) -> tuple[State, Plan]:
    present = OC.read(text)
    return present, plan(*wanted, OC, present)


def refusal(document: Any, wanted: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(json.dumps(document), wanted)
    return str(caught.value)


# --- reading -------------------------------------------------------------------------


def test_members_keys_and_values_that_say_their_module_are_read() -> None:
    state = OC.read(CAPTURED)
    classifier = "dscp_based_classifier_ipv4"
    assert state[Place("classifier", classifier, "type")] == "IPV4"
    assert state[Place("term-ipv4", f"{classifier}|3", "dscp-set")] == "3,26,27"
    assert state[Place("scheduler", "scheduler|1", "type")] == "ONE_RATE_TWO_COLOR"
    assert state[Place("interface-classifier", "eth1|IPV4", "name")] == classifier
    assert state[Place("interface-scheduler", "eth1", "name")] == "scheduler"


def test_an_interface_ref_is_read_where_it_says_more_than_the_key() -> None:
    state = OC.read(CAPTURED)
    refs = {(each.name, each.field): state[each] for each in state if each.kind == "interface-ref"}
    assert refs == {("eth2.1", "interface"): "eth2", ("eth2.1", "subinterface"): "1"}


def test_counters_and_what_vendors_add_are_not_configuration() -> None:
    assert not [each for each in OC.read(CAPTURED) if each.kind == "interface-queue"]


def otherwise(value: Any) -> Any:
    """The same to a device: without names of modules, in another order."""
    if isinstance(value, dict):
        return {name.rpartition(":")[2]: otherwise(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [otherwise(each) for each in reversed(value)]
    return value


def test_neither_order_nor_names_of_modules_are_a_difference() -> None:
    assert OC.read(json.dumps(otherwise(captured()))) == OC.read(CAPTURED)
    inner = captured()["openconfig-qos:qos"]
    assert OC.read(json.dumps(inner)) == OC.read(CAPTURED)


@pytest.mark.parametrize(
    "text",
    ["{}", '{"openconfig-qos:qos": {}}', '{"qos": {}}', '{"openconfig-qos:interfaces": {}}'],
)
def test_a_device_without_qos_is_empty(text: str) -> None:
    assert OC.read(text) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            sonic_text(sonic_roce(("Ethernet0",))),
            "not the result of a Get of /openconfig-qos:qos: it",
        ),
        ('{"openconfig-interfaces:interfaces": {}}', "it has 'openconfig-interfaces:interfaces'"),
        ("<html><body>401 Unauthorized</body></html>", "is not JSON"),
        ("qos map dscp 26 to traffic-class 3\n", "is not JSON"),
        ("set class-of-service interfaces et-0/0/0 scheduler-map ROCE\n", "is not JSON"),
    ],
)
def test_what_another_platform_says_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadState, match=said):
        OC.read(text)


def test_a_tree_without_end_is_refused() -> None:
    deep: Any = {"config": {"x": 1}}
    for _ in range(40):
        deep = {"below": deep}
    document = captured()
    qos(document, "interfaces")[0]["deep"] = deep
    with pytest.raises(BadState, match="nested too deeply"):
        OC.read(json.dumps(document))


# --- beside others -------------------------------------------------------------------


def test_a_port_with_a_classifier_or_a_scheduler_of_others_is_refused_by_their_names() -> None:
    said = refusal(captured(), intent())
    assert "kept: eth1 has 'dscp_based_classifier_ipv4', and the plan would replace it" in said
    assert "kept: eth1 has 'scheduler'" in said


def test_code_points_of_a_kept_queue_go_on_to_the_group_of_others() -> None:
    wanted = intent(KEEP)
    present, made = planned(CAPTURED, wanted)
    then = after(present, made.changes)
    for family in ("", "-IPV6"):
        term = f"DLCP{family}|DLCP-KEEP-target-group-RDMA"
        assert then[Place("term-action", term, "target-group")] == "target-group-RDMA"
        match = "term-ipv6" if family else "term-ipv4"
        assert then[Place(match, term, "dscp-set")] == "3,26,27"
        rest = [
            then[each]
            for each in then
            if each.kind == match and each.name.startswith(f"DLCP{family}|")
        ]
        assert sorted(int(each) for text in rest for each in text.split(",")) == [*range(64)]
    # Of others nothing is gone but the two bindings that are named.
    bound = [each for each in present if then.get(each) != present[each]]
    assert bound == [
        Place("interface-classifier", "eth1|IPV4", "name"),
        Place("interface-scheduler", "eth1", "name"),
    ]
    assert not plan(*wanted, OC, then).changes


def test_a_removal_does_not_leave_a_kept_queue_without_its_code_points() -> None:
    wanted = intent(KEEP)
    present, made = planned(CAPTURED, wanted)
    with pytest.raises(Refused, match="rollback") as caught:
        removal(*wanted, OC, after(present, made.changes))
    assert (
        "kept: eth1: the plan would remove 'DLCP', which sends code points to 'target-group-RDMA'"
        in str(caught.value)
    )


def test_a_queue_that_the_intent_keeps_is_not_made_a_second_time() -> None:
    keep = f"{KEEP}[keep.dscp]\n40 = 3\n"
    present, made = planned(CAPTURED, intent(keep))
    then = after(present, made.changes)
    assert Place("queue", "DLCP-Q3", "queue-id") not in then
    kept = then[Place("term-ipv4", "DLCP|DLCP-KEEP-target-group-RDMA", "dscp-set")]
    assert kept == "3,26,27,40"
    assert not plan(*intent(keep), OC, then).changes


def test_a_code_point_of_a_kept_queue_may_not_be_a_class_of_ours() -> None:
    said = refusal(captured(), intent(KEEP, classes=""))
    assert "kept-dscp: eth1: code point 26 goes to queue 3 today, which is kept" in said


def test_ports_that_send_a_kept_code_point_to_different_groups_are_refused() -> None:
    """One classifier of ours is on both."""
    document = captured()
    for name, rows in (("forwarding-groups", "RDMA2"), ("classifiers", "other")):
        copied = json.loads(json.dumps(qos(document, name)[-1 if name == "classifiers" else 1]))
        text = json.dumps(copied).replace("target-group-RDMA", "target-group-RDMA2")
        text = text.replace("dscp_based_classifier_ipv4", rows)
        qos(document, name).append(json.loads(text))
    bound = {"type": "IPV4", "config": {"type": "IPV4", "name": "other"}}
    qos(document, "interfaces").append(
        {
            "interface-id": "eth2",
            "config": {"interface-id": "eth2"},
            "input": {"classifiers": {"classifier": [bound]}},
        }
    )
    keep = KEEP.replace('"scheduler"', '"scheduler", "other"')
    said = refusal(document, intent(keep, "eth[1-2]"))
    assert (
        "code point 26 goes to 'target-group-RDMA2' on eth2 and to 'target-group-RDMA' on" in said
    )


def test_a_scheduler_that_serves_a_kept_queue_stays() -> None:
    document = captured()
    serves = {"id": "RDMA", "config": {"id": "RDMA", "input-type": "QUEUE", "queue": "RDMA"}}
    scheduler = qos(document, "scheduler-policies")[0]["schedulers"]["scheduler"][1]
    scheduler["inputs"]["input"].append(serves)
    said = refusal(document, intent(KEEP))
    assert "kept: eth1: 'scheduler' serves queue 'RDMA' (3), which is kept" in said


def test_a_queue_of_others_on_the_port_is_refused_by_its_name() -> None:
    document = captured()
    output = qos(document, "interfaces")[0]["openconfig-qos:output"]
    output["queues"]["queue"] = [{"name": "NC1", "config": {"name": "NC1"}}]
    said = refusal(document, intent(KEEP))
    assert "kept: eth1 has queue 'NC1', and a queue of the plan has its number, 7" in said
    del output["scheduler-policy"]
    planned(json.dumps(document), intent(KEEP.replace("[3]", "[3, 7]")))


@pytest.mark.parametrize(
    ("side", "what"),
    [
        ("output", {"classifiers": {"classifier": [{"type": "IPV4", "config": {"name": "OUT"}}]}}),
        ("input", {"scheduler-policy": {"config": {"name": "POLICER"}}}),
    ],
)
def test_what_rewrites_or_drops_at_a_port_is_refused(side: str, what: dict[str, Any]) -> None:
    document = captured()
    port = qos(document, "interfaces")[0]
    port.setdefault(f"openconfig-qos:{side}", {}).update(what)
    said = refusal(document, intent(KEEP))
    assert f'unread: eth1: "{side}/{next(iter(what))}' in said


def test_queues_without_a_number_are_refused_by_name() -> None:
    """A real answer has six of six so: NC1, AF4, BE1 ... (featureprofiles, QoS READMEs)."""
    document = captured()
    for row in qos(document, "queues"):
        row["config"].pop("queue-id", None)
    bare = json.dumps(document)
    serves = {"id": "RDMA", "config": {"id": "RDMA", "input-type": "QUEUE", "queue": "RDMA"}}
    scheduler = qos(document, "scheduler-policies")[0]["schedulers"]["scheduler"][1]
    scheduler["inputs"]["input"].append(serves)
    said = refusal(document, intent(KEEP))
    assert "kept: eth1: 'scheduler' serves queue 'RDMA', which has no queue-id" in said
    document = json.loads(bare)
    output = qos(document, "interfaces")[0]["openconfig-qos:output"]
    output["queues"]["queue"] = [{"name": "NC1", "config": {"name": "NC1"}}]
    assert "kept: eth1 has queue 'NC1', which has no queue-id" in refusal(document, intent(KEEP))
    assert "'dscp_based_classifier_ipv4' sends packets to queue" in refusal(
        json.loads(bare), intent(KEEP)
    )


@pytest.mark.parametrize(
    ("key", "ref"),
    [("uplink", {"interface": "eth3"}), ("eth3", {"interface": "eth3", "subinterface": 5})],
)
def test_a_port_under_another_name_is_refused(key: str, ref: dict[str, Any]) -> None:
    document = captured()
    row = {"interface-id": key, "config": {"interface-id": key}, "interface-ref": {"config": ref}}
    qos(document, "interfaces").append(row)
    said = refusal(document, intent(KEEP, "eth3"))
    assert f"kept: interface-id {key!r} stands for eth3.{ref.get('subinterface', 0)}" in said


# --- writing -------------------------------------------------------------------------


def test_ipv6_is_classified_as_ipv4_is() -> None:
    wanted = intent()
    state = OC.render(*wanted).state
    sets = {each: state[each] for each in state if each.field == "dscp-set"}
    ours = {each.name: text for each, text in sets.items() if each.kind == "term-ipv4"}
    assert ours
    assert {
        each.name.replace("DLCP-IPV6|", "DLCP|"): text
        for each, text in sets.items()
        if each.kind == "term-ipv6"
    } == ours
    assert state[Place("classifier", "DLCP-IPV6", "type")] == "IPV6"
    assert state[Place("interface-classifier", "eth1|IPV6", "name")] == "DLCP-IPV6"


def test_an_interface_is_made_with_a_reference_to_its_port() -> None:
    [step] = planned("{}", intent())[1].steps
    updates = json.loads(step.payload)["update"]
    where = "openconfig-qos:qos/interfaces/interface[interface-id=eth1]"
    assert updates[f"{where}/config"] == {"interface-id": "eth1"}
    assert updates[f"{where}/interface-ref/config"] == {"interface": "eth1"}
    # One that is there has what the device took; some know no interface-ref.
    [step] = planned(CAPTURED, intent(KEEP))[1].steps
    assert f"{where}/interface-ref/config" not in json.loads(step.payload)["update"]


def test_what_leaves_a_list_is_deleted_before_the_list_is_written() -> None:
    """An update of a leaf-list adds to it."""
    wanted = intent()
    state = dict(OC.render(*wanted).state)
    place = Place("term-ipv4", "DLCP|DLCP-Q7", "dscp-set")
    state[place] += ",50"
    [step] = plan(*wanted, OC, state).steps
    body = json.loads(step.payload)
    where = "openconfig-qos:qos/classifiers/classifier[name=DLCP]/terms/term[id=DLCP-Q7]"
    assert body["delete"] == [f"{where}/conditions/ipv4/config/dscp-set"]
    assert list(body["update"]) == [f"{where}/conditions/ipv4/config"]


def bare(value: Any) -> Any:
    """Without containers that nothing is in."""
    if isinstance(value, dict):
        inner = {name: bare(each) for name, each in value.items()}
        return {name: each for name, each in inner.items() if each not in ({}, [])}
    return [bare(each) for each in value] if isinstance(value, list) else value


def applied(device: Tree, wanted: tuple[Intent, Device], how: Callable[..., Plan]) -> None:
    for step in how(*wanted, OC, OC.read(device.says())).steps:
        device.do(step.payload)


def test_a_removal_leaves_nothing_that_was_made() -> None:
    device, wanted = Tree(), intent()
    applied(device, wanted, plan)
    applied(device, wanted, removal)
    assert bare(device.root) == {}


def test_a_removal_leaves_what_others_have_on_the_interface() -> None:
    device, wanted = Tree(), intent()
    theirs = {
        "interface-id": "eth1",
        "config": {"interface-id": "eth1"},
        "output": {"config": {"buffer-allocation-profile": "theirs"}},
    }
    device.root = {"openconfig-qos:qos": {"interfaces": {"interface": [theirs]}}}
    before = json.loads(device.says())
    assert Place(OTHER, "eth1|output/config/buffer-allocation-profile", "") in OC.read(
        device.says()
    )
    applied(device, wanted, plan)
    applied(device, wanted, removal)
    assert bare(device.root) == before


# --- the model -----------------------------------------------------------------------


def linted(state: State, ports: tuple[str, ...], folder: Path) -> str:
    """What yanglint says to a state, with the interfaces that it refers to."""
    rows = [
        {"name": port, "config": {"name": port, "type": "iana-if-type:ethernetCsmacd"}}
        for port in ports
    ]
    document = {**tree(state), "openconfig-interfaces:interfaces": {"interface": rows}}
    data = folder / "config.json"
    data.write_text(json.dumps(document))
    modules = ("openconfig-qos.yang", "openconfig-interfaces.yang", "iana-if-type.yang")
    argv = (
        "yanglint",
        "-i",
        "-i",
        "-t",
        "config",
        "-p",
        MODELS,
        *(str(Path(MODELS, each)) for each in modules),
        str(data),
    )
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else done.stderr + done.stdout


def needs_models(test: Any) -> Any:
    """OpenConfig's own models: openconfig/public, in one folder."""
    absent = pytest.mark.skipif(not MODELS, reason="OPENCONFIG_YANG_MODELS names no folder")
    no_lint = pytest.mark.skipif(not shutil.which("yanglint"), reason="yanglint is not installed")
    return absent(no_lint(test))


@needs_models
@pytest.mark.parametrize("example", taken("openconfig"))
def test_examples_pass_the_model(example: str, tmp_path: Path) -> None:
    device = DEVICES["openconfig"]
    state = OC.render(on_every_platform(example), device).state
    assert linted(state, device.ports, tmp_path) == ""


@needs_models
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (Place("classifier", "DLCP", "type"), "IPV5"),
        (Place("interface-scheduler", "eth1", "name"), "none"),
        (Place("interface-classifier", "eth1|IPV6", "name"), "no"),
        (Place("term-ipv6", "DLCP-IPV6|DLCP-Q7", "dscp-set"), "64"),
        (Place("curve-wred", "DLCP-Q7", "enable"), "x"),
    ],
)
def test_the_model_finds_a_mistake(place: Place, value: str, tmp_path: Path) -> None:
    state = {**OC.render(*intent()).state, place: value}
    assert linted(state, ("eth1",), tmp_path)


@needs_models
def test_a_plan_beside_others_passes_the_model(tmp_path: Path) -> None:
    document = captured()
    document["openconfig-qos:qos"].pop("openconfig-qos:interfaces")
    present, made = planned(json.dumps(document), intent(KEEP))
    assert linted(after(present, made.changes), ("eth1",), tmp_path) == ""
