"""Models of switches: what a line changes, by port, code point and respect."""

import json
from typing import Any, Final

import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.model.known import MODELS, model_of
from switchcfg.model.values import differences, grouped
from switchcfg.plan.account import Reading
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import difference
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Step
from tests.switchcfg.accounted import PORTS, planned, refusal, wanted
from tests.switchcfg.cli_device import JunosLines
from tests.switchcfg.golden import PAIRS, on_every_platform
from tests.switchcfg.stock import sonic_roce
from tests.switchcfg.test_model_faults import EOS, JUNOS, KEPT, NVUE, NXOS, OPENCONFIG
from tests.switchcfg.test_platforms import bring, desired, device_for


def changed(platform: str, before: str, after: str) -> list[str]:
    model = MODELS[platform]
    return [*grouped(differences(model(before, ()), model(after, ())))]


# --- SONiC -----------------------------------------------------------------------------


def sonic(**tables: Any) -> str:
    """A stock switch with rows replaced: `TABLE={key: row}`; None: removed."""
    found = sonic_roce(PORTS["sonic"])
    for table, rows in tables.items():
        for key, row in rows.items():
            found.setdefault(table, {})[key] = row
            if row is None:
                del found[table][key]
    return json.dumps(found)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"TC_TO_PRIORITY_GROUP_MAP": {"AZURE": {"3": "0", "4": "4"}}}, "DSCP 3: group: 3 -> 0"),
        ({"SCHEDULER": {"scheduler.1": {"type": "DWRR", "weight": "20"}}},
         "DSCP 3-4: share: type DWRR, weight 15 -> type DWRR, weight 20"),
        ({"SCHEDULER": {"scheduler.1": {"type": "DWRR", "weight": "15", "pir": "9"}}},
         "DSCP 3-4: shaper: none -> pir 9"),
        ({"BUFFER_QUEUE": {"Ethernet0|3-4": None}}, "DSCP 3-4: buffer: pool egress_lossless_pool"),
        ({"BUFFER_QUEUE": {"Ethernet0|3": {"profile": "egress_lossy_profile"}}},
         "DSCP 3: unknown: none -> BUFFER_QUEUE: two rows for Ethernet0|3 differ"),
        ({"WRED_PROFILE": {"AZURE_LOSSLESS": {"ecn": "ecn_none"}}}, "DSCP 3-4: mark: ecn ecn_all"),
        ({"CABLE_LENGTH": {"AZURE": {"Ethernet0": "300m"}}},
         "headroom: computed for cable 40m and speed 100000 -> computed for cable 300m and speed"),
        ({"TC_TO_DSCP_MAP": {"X": {"3": "0"}}, "PORT_QOS_MAP": {"Ethernet0": {
            "dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE", "tc_to_pg_map": "AZURE",
            "pfc_to_queue_map": "AZURE", "pfc_enable": "3", "tc_to_dscp_map": "X"}}},
         "DSCP 3: rewrite: none -> DSCP 0"),
        ({"DSCP_TO_TC_MAP": {"AZURE": None}}, "-> PORT_QOS_MAP dscp_to_tc_map AZURE"),
        ({"PORT_QOS_MAP": {"Ethernet0": {"new_field": "x"}}}, "-> PORT_QOS_MAP new_field"),
    ],
)  # fmt: skip
def test_rows_of_sonic_are_of_the_code_points_that_use_them(
    tables: dict[str, Any], says: str
) -> None:
    found = changed("sonic", sonic(), sonic(**tables))
    assert [line for line in found if line.startswith("Ethernet0: ") and says in line]


def test_keys_of_several_ports_and_the_map_of_the_whole_switch_are_the_same_on_sonic() -> None:
    tables = sonic_roce(PORTS["sonic"])
    both = dict(tables)
    for table in ("QUEUE", "BUFFER_QUEUE", "BUFFER_PG"):
        rows = both[table]
        both[table] = {
            key.replace("Ethernet0|", "Ethernet0,Ethernet4|"): rows[key]
            for key in rows
            if key.startswith("Ethernet0|")
        }
    row = both["PORT_QOS_MAP"]["Ethernet0"]
    mine = {field: row[field] for field in row if field != "dscp_to_tc_map"}
    both["PORT_QOS_MAP"] = {
        "Ethernet0,Ethernet4": mine,
        "global": {"dscp_to_tc_map": "AZURE"},
    }
    assert not changed("sonic", json.dumps(tables), json.dumps(both))
    del both["PORT_QOS_MAP"]["global"]
    lost = changed("sonic", json.dumps(tables), json.dumps(both))
    assert "Ethernet4: DSCP 3: queue: 3 -> 0" in lost


def test_a_map_of_vlan_priorities_counts_for_all_frames_without_a_map_of_code_points() -> None:
    tables = sonic_roce(PORTS["sonic"])
    tables["DOT1P_TO_TC_MAP"] = {"AZURE": {"3": "3"}}
    for row in tables["PORT_QOS_MAP"].values():
        row["dot1p_to_tc_map"] = "AZURE"
    both = json.dumps(tables)
    for row in tables["PORT_QOS_MAP"].values():
        del row["dscp_to_tc_map"]
    lines = changed("sonic", json.dumps(tables), both)
    assert "Ethernet0: PCP 0-7: by: PCP -> PCP, unless IP" in lines


# --- EOS, NX-OS, NVUE ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("qos map traffic-class 3 to tx-queue 5", "Ethernet2/1: DSCP 24-31: queue: 3 -> 5"),
        ("qos rewrite dscp", "Ethernet1/1: DSCP 0-63: rewrite: none -> dscp by the class"),
        ("qos map dscp 24 to traffic-class 3 drop-precedence 2",
         "Ethernet1/1: DSCP 24: by: DSCP -> DSCP; drop precedence 2"),
        ("qos random-detect ecn global", "DSCP 0-63: unknown: none -> qos random-detect ecn"),
        ("interface Ethernet1/1\n   no priority-flow-control", "no-drop by 3 -> no-drop by 3, off"),
        ("interface Ethernet1/1\n   shape rate 1 gbps", "shaper: none -> shape rate 1 gbps"),
        ("interface Ethernet1/1\n   uc-tx-queue 3\n      bandwidth percent 5",
         "Ethernet1/1: DSCP 24-31: share: strict -> strict; bandwidth percent 5"),
        ("interface Ethernet1/1\n   no qos trust", "Ethernet1/1: DSCP 0-63: by: DSCP -> port"),
        ("interface Ethernet1/1\n   service-policy type qos input X",
         "Ethernet1/1: DSCP 0-63: unknown: none -> service-policy X"),
        ("interface Ethernet1/1\n   switchport mode trunk", "by: DSCP -> port"),
        ("interface Ethernet1/1\n   shape foo", "unknown: none -> shape foo"),
        ("interface Ethernet1/1\n   uc-tx-queue 3\n      new", "DSCP 24-31: unknown: none -> new"),
        ("interface Ethernet1/1\n   flowcontrol receive on", "shaper: none -> flowcontrol receive"),
    ],
)  # fmt: skip
def test_lines_of_eos(line: str, says: str) -> None:
    assert [each for each in changed("eos", EOS, f"{EOS}{line}\n") if says in each]


@pytest.mark.parametrize(
    "line",
    [
        "no qos map dscp 25\n",
        "qos map dscp 24 25 26 to traffic-class 3\n",
        "qos map traffic-class 3 to uc-tx-queue 3\n",
        "qos profile UNUSED\n   shape rate 1 gbps\n",
        "qos map traffic-class 5 to dscp 0\n",  # without `qos rewrite dscp`
        "qos map traffic-class 2 to dscp 0\nno qos map traffic-class 2 to dscp 0\nqos rewrite cos\n"
        "no qos rewrite cos\n",
        "interface Ethernet1/1\n   uc-tx-queue 3\n      shape rate 1 gbps\n   no uc-tx-queue 3\n",
        "qos profile X\nno qos profile X\ninterface Ethernet1/1\n   default qos trust\n",
    ],
)
def test_lines_of_eos_that_change_no_treatment(line: str) -> None:
    assert not changed("eos", EOS, EOS + line)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("match dscp 24", "match dscp 24,cs4", "Ethernet1/1: DSCP 32: queue: 0 -> 3"),
        ("match dscp 24", "match access-group name X", "DSCP 0-23, 25-63: queue: 0 -> 3 or 0"),
        ("match-any", "match-all", ""),
        ("set qos-group 3", "set qos-group 3\n    set dscp 0", "rewrite: none -> set dscp 0"),
        ("pause pfc-cos 3", "mtu 2158", "DSCP 24: pfc: pause pfc-cos 3, mode on -> none"),
        ("mode on", "mode off", "Ethernet1/1: DSCP 24: pfc: pause pfc-cos 3, mode on -> none"),
        ("100 kbytes", "100000 bytes", ""),
        ("100 kbytes", "1 mbytes", "buffer: queue-limit 100000 bytes -> queue-limit 1000000"),
        ("system qos\n", "system qos\n  service-policy type qos input CLASSIFY\n",
         "Ethernet1/2: DSCP 24: queue: 0 -> 3"),
        ("  service-policy type queuing output OUT\n", "  qos new\n", "unknown: none -> qos new"),
    ],
)  # fmt: skip
def test_lines_of_nxos(old: str, new: str, says: str) -> None:
    found = changed("nxos", NXOS, NXOS.replace(old, new))
    assert [each for each in found if says in each] if says else not found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nv set qos mapping default-global trust l2", "DSCP 0-63: by: DSCP -> port"),
        ("nv set qos mapping default-global trust both", "PCP 0-7: by: port -> PCP"),
        ("nv set qos remark default-global rewrite l3", "rewrite: none -> dscp by map"),
        ("nv set qos roce enable on", "unknown: none -> qos roce enable on"),
        ("nv set qos new thing 1", "unknown: none -> qos new thing 1"),
        ("nv set interface swp2 qos pfc profile ROCE", "swp2: DSCP 3, 24-31: pfc: none -> rx on"),
        ("nv set interface swp1 qos pfc-watchdog", "tx on -> rx on, tx on; watchdog"),
        ("nv set qos pfc ROCE cable-length 5", "headroom: none -> cable-length 5"),
        ("nv set qos traffic-pool default-lossless memory-percent 9", "-> memory-percent 9"),
        ("nv set interface swp1-2 qos link-pause profile P\nnv set qos link-pause P rx enable",
         "swp2: DSCP 0-63: shaper: none -> rx enable"),
        ("nv set acl A rule 1 action set dscp 0\nnv set interface swp1 acl A inbound",
         "swp1: DSCP 0-63: unknown: none -> acl A"),
        ("nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 5",
         "queue: 3 -> 5"),
    ],
)  # fmt: skip
def test_lines_of_nvue(line: str, says: str) -> None:
    assert [each for each in changed("nvue", NVUE, f"{NVUE}{line}\n") if says in each]


# --- Junos, OpenConfig ---------------------------------------------------------------------

COS: Final = "class-of-service"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"set {COS} forwarding-classes queue 5 NO-LOSS", "DSCP 26, 28: queue: 4 -> 5"),
        (f"deactivate {COS} schedulers s1 explicit-congestion-notification", "mark: explicit"),
        (f"set {COS} drop-profiles dp1 interpolate fill-level 10", "fill-level 10"),
        (f"delete {COS} congestion-notification-profile cnp input dscp code-point 011010",
         "DSCP 26: pfc: no-loss, priority 3; output 011; input dscp -> no-loss, priority 3; out"),
        (f"set {COS} interfaces et-0/0/0 unit 0 rewrite-rules dscp R\n"
         f"set {COS} rewrite-rules dscp R forwarding-class NO-LOSS loss-priority low code-point be",
         "DSCP 26, 28: rewrite: none -> dscp NO-LOSS loss-priority low code-point be"),
        (f"set {COS} interfaces et-0/0/0 shaping-rate 1g", "shaper: none -> shaping-rate 1g"),
        (f"set {COS} interfaces et-0/0/0 unit 0 forwarding-class CNP", "DSCP 26, 28: queue: 4 ->"),
        (f"set {COS} shared-buffer ingress buffer-partition lossless percent 50", "headroom: "),
        (f"set {COS} classifiers dscp mydscp import default", "import in classifier mydscp"),
        (f"set {COS} interfaces et-0/0/0 unit 0 classifiers dscp gone", "-> classifier gone"),
        (f"set {COS} interfaces et-0/0/0 unit 0 classifiers dscp-ipv6 six\n"
         f"set {COS} classifiers dscp-ipv6 six forwarding-class CNP loss-priority low "
         "code-points [ af31 cs1 ]", "DSCP 26: queue: 4 -> 4 or 3"),
        (f"set {COS} interfaces et-0/0/0 unit 0 classifiers ieee-802.1 tags\n"
         f"set {COS} classifiers ieee-802.1 tags forwarding-class CNP loss-priority low "
         "code-points 011", "PCP 3: queue: 0 -> 3"),
        (f"set groups G {COS} schedulers s1 priority low\nset apply-groups G", "-> group G"),
        (f"set {COS} interfaces et-* unit 0 classifiers dscp mydscp\nset interfaces et-9/0/0 mtu 9",
         "et-9/0/0: DSCP 26, 28: queue: 0 -> 4"),
    ],
)  # fmt: skip
def test_lines_of_junos(line: str, says: str) -> None:
    assert [each for each in changed("junos", JUNOS, f"{JUNOS}{line}\n") if says in each]


def test_an_alias_and_the_bits_of_a_code_point_are_one_on_junos() -> None:
    alias = f"set {COS} code-point-aliases dscp mine 011010\n"
    named = JUNOS.replace("code-points 011010", "code-points mine") + alias
    assert not changed("junos", JUNOS, named)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"dscp-set": [27, 26, 3]', '"dscp-set": [27, 3]', "eth1: DSCP 26: queue: 3 -> none"),
        ('"queue-id": 3', '"x": 3', "queue: 3 -> RDMA (unknown)"),
        ('"dscp-set": [27, 26, 3]', '"dscp-set": [27, 26, 3], "protocol": 6',
         "DSCP 3, 26-27: queue: 3 -> 3 or none"),
        ('"ipv4": {"openconfig-qos:config": {"dscp-set": [2, 1, 0]}}', '"l2": {"config": {"x": 1}}',
         "DSCP 0-2: queue: 0 -> none"),
    ],
)  # fmt: skip
def test_members_of_openconfig(old: str, new: str, says: str) -> None:
    assert OPENCONFIG.count(old)
    found = changed("openconfig", OPENCONFIG, OPENCONFIG.replace(old, new))
    assert [each for each in found if says in each]


# --- plans --------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_state_that_is_read_has_its_text_for_the_model(platform: str) -> None:
    text, _ = KEPT[platform]
    present = PLATFORMS[platform].read(text)
    assert isinstance(present, Reading)
    assert present.text == text


def test_a_kept_code_point_that_the_model_does_not_understand_is_refused() -> None:
    both = sonic_roce(PORTS["sonic"])
    both["BUFFER_PG"]["Ethernet0|3"] = {"profile": "ingress_lossy_profile"}
    said = refusal("sonic", json.dumps(both), "queues = [3, 4]")
    assert "Ethernet0: DSCP 3: not understood: BUFFER_PG: two rows for Ethernet0|3 differ" in said
    assert "Ethernet0: DSCP 4: " not in said


def test_a_plan_that_the_model_cannot_follow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, (text, keep) = PLATFORMS["sonic"], KEPT["sonic"]
    wrong = Step("", '[{"op": "remove", "path": "/QUEUE/Ethernet99|3"}]')
    monkeypatch.setattr(type(kind), "steps", lambda *_: [wrong])
    with pytest.raises(Refused, match="kept-treatment: leaf: the model of the switch cannot be"):
        plan(*wanted("sonic", keep), kind, kind.read(text))


@pytest.mark.parametrize("platform", ["openconfig", "sonic"])
def test_an_answer_of_another_form_is_one_error(platform: str) -> None:
    for text in ("[]", "[" * 9999):
        with pytest.raises(BadState, match="the model of the switch cannot be computed"):
            model_of(platform, text)


def test_a_removal_does_not_take_code_points_from_foreign_flow_control() -> None:
    device = JunosLines()
    device.do(JUNOS)
    kind = PLATFORMS["junos"]
    intent = wanted("junos", 'queues = [3, 4]\nreplaces = ["sm1", "mydscp"]')
    text = device.says().replace("110000", "111000")
    device.have = {line.removeprefix("set ") for line in text.splitlines()}
    for step in plan(*intent, kind, kind.read(device.says())).steps:
        device.do(step.payload)
    with pytest.raises(Refused) as caught:
        removal(*intent, kind, kind.read(device.says()))
    assert "kept-treatment: et-0/0/0: DSCP 26, 28: queue: 4 -> 0" in str(caught.value)


def test_a_plan_that_keeps_nothing_may_change_everything() -> None:
    assert planned("eos", "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet2/1\n").changes


@pytest.mark.parametrize(("example", "platform"), PAIRS)
def test_the_model_follows_steps_as_a_device_does(example: str, platform: str) -> None:
    """On a switch that has another example's plan: values are set, replaced and removed."""
    kind, device, model = PLATFORMS[platform], device_for(platform), MODELS[platform]
    first = "two_drop_precedences"
    bring(device, platform, on_every_platform(first), desired(first, platform))
    text, intent = device.says(), on_every_platform(example)
    present, want = kind.read(text), desired(example, platform)
    steps = kind.steps(present, difference(present, want, kind.owns(intent)))
    for step in steps:
        device.do(step.payload)
    followed = model(text, [step.payload for step in steps])
    assert not [*differences(followed, model(device.says(), ()))]


# --- under load ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "says"),
    [
        ("sonic", "Ethernet[0-4/4]: queue 3 waits for strict queues 5, 6, 7, which can starve it, "
         "and has 15 of 44 of the rate that is left"),
        ("nxos", "Ethernet1/[1-2]: queue 3 waits for strict queues 5, 6, 7, which can starve it, "
         "and has 50 of 50 of the rate that is left"),
        ("nvue", "queue 3 waits for strict queues 5, 6, 7, which can starve it, and has 50 of 50"),
        ("junos", "et-0/0/[0-1]: queue 4 waits for strict queues 3, 5, 6, 7, which can starve it"),
    ],
)  # fmt: skip
def test_a_kept_queue_below_new_strict_queues_is_a_warning_of_the_plan(
    platform: str, says: str
) -> None:
    text, keep = KEPT[platform]
    kind = PLATFORMS[platform]
    made = plan(*wanted(platform, keep), kind, kind.read(text))
    found = [each for each in made.degraded if each.startswith("under load: ")]
    assert [each for each in found if says in each], found


def test_what_waits_as_long_as_before_is_no_warning() -> None:
    """A queue of EOS is strict by default, and so are those before it."""
    made = planned("eos", EOS, "queues = [3]")
    assert not [each for each in made.degraded if each.startswith("under load")]
