import json
from typing import Any

import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.plan.plan import plan
from switchcfg.platforms.sonic.platform import Sonic
from tests.switchcfg.intents import whole

# A switch that takes the intent as it is.
SWITCH: dict[str, Any] = {
    "PORT": {f"Ethernet{port}": {"admin_status": "up"} for port in (0, 4, 8, 40, 60)},
    "BUFFER_POOL": {"egress_lossy_pool": {"type": "egress", "mode": "dynamic", "size": "1"}},
    "SCHEDULER": {"other": {"type": "DWRR", "weight": "10"}},
    "WRED_PROFILE": {"other": {"ecn": "ecn_all"}},
    "TC_TO_QUEUE_MAP": {"AZURE": {"0": "0", "3": "3"}},
    "DSCP_TO_TC_MAP": {"AZURE": {"0": "0", "24": "3"}},
    "PORT_QOS_MAP": {"Ethernet96": {"dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE"}},
}


def planned(table: str, key: str, fields: dict[str, Any] | None) -> None:
    """Plan the intent for a switch with one object changed, or removed."""
    tables = {name: dict(rows) for name, rows in SWITCH.items()}
    if fields is None:
        tables[table].pop(key)
    else:
        tables.setdefault(table, {})[key] = fields
    intent, sonic = whole(), Sonic()
    plan(intent, intent.device("leaf1"), sonic, sonic.read(json.dumps(tables)))


def test_a_switch_without_surprises_is_planned_for() -> None:
    planned("SCHEDULER", "other", SWITCH["SCHEDULER"]["other"])


SURPRISES: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "no-port": ("PORT", "Ethernet40", None),
    "dangling": ("BUFFER_POOL", "egress_lossy_pool", None),
    "old-reference": ("QUEUE", "Ethernet0|2", {"scheduler": "[SCHEDULER|other]"}),
    "scheduler-priority": ("SCHEDULER", "x", {"type": "STRICT", "priority": "1"}),
    "scheduler-type": ("SCHEDULER", "x", {"type": "strict"}),
    "scheduler-rate": ("SCHEDULER", "x", {"type": "STRICT", "pir": "9"}),
    "range: SCHEDULER": ("SCHEDULER", "x", {"type": "DWRR", "weight": "101"}),
    "threshold-pair": ("WRED_PROFILE", "x", {"green_min_threshold": "9"}),
    "threshold: WRED_PROFILE": (
        "WRED_PROFILE", "x",
        {"green_min_threshold": "1", "green_max_threshold": "2147483648"},
    ),
    "threshold-order": (
        "WRED_PROFILE", "x", {"red_min_threshold": "9", "red_max_threshold": "8"},
    ),
    "range: WRED_PROFILE": ("WRED_PROFILE", "x", {"green_drop_probability": "101"}),
    "boolean": ("WRED_PROFILE", "x", {"wred_green_enable": "True"}),
    "ecn: WRED_PROFILE": ("WRED_PROFILE", "x", {"ecn": "ecn_blue"}),
    # Proposed for thresholds of ECN alone, and in no release: orchagent drops the entry.
    "unknown-field: WRED_PROFILE|y": ("WRED_PROFILE", "y", {"ecn_green_min_threshold": "1000"}),
    "unknown-field": ("WRED_PROFILE", "x", {"wred_blue_enable": "true"}),
    "range: DSCP_TO_TC_MAP|x 07": ("DSCP_TO_TC_MAP", "x", {"07": "1"}),
    "range: DSCP_TO_TC_MAP|x 64": ("DSCP_TO_TC_MAP", "x", {"64": "1"}),
    "range: DSCP_TO_TC_MAP|x 6 -> 16": ("DSCP_TO_TC_MAP", "x", {"6": "16"}),
    "range: TC_TO_QUEUE_MAP|x 1 -> 10: the keys are 0..15, and the values 0..9": (
        "TC_TO_QUEUE_MAP", "x", {"1": "10"}
    ),
    "queue-index": ("QUEUE", "Ethernet0|99", {}),
    "queue-index: Ethernet0|abc": ("QUEUE", "Ethernet0|abc", {}),
    "queue-index: Ethernet0|3-1": ("BUFFER_QUEUE", "Ethernet0|3-1", {}),
    "range: BUFFER_PROFILE": (
        "BUFFER_PROFILE", "x", {"pool": "egress_lossy_pool", "dynamic_th": "9"},
    ),
    "threshold-kind": (
        "BUFFER_PROFILE", "x",
        {"pool": "egress_lossy_pool", "dynamic_th": "1", "static_th": "1"},
    ),
    "discard-action": ("BUFFER_PROFILE", "x", {"pool": "egress_lossy_pool", "dynamic_th": "1",
                                               "packet_discard_action": "mark"}),
    "trimming": ("SWITCH_TRIMMING", "GLOBAL", {"queue_index": "8"}),
    "hash-field": ("SWITCH_HASH", "GLOBAL", {"lag_hash": ["SRC_IP", "SRC_IQ"]}),
    "name: TC_TO_QUEUE_MAP|": ("TC_TO_QUEUE_MAP", "x" * 33, {"0": "0"}),
    "name: WRED_PROFILE|a b": ("WRED_PROFILE", "a b", {"ecn": "ecn_none"}),
    "lossless": ("PORT_QOS_MAP", "Ethernet4", {"pfc_enable": "3,6"}),
}  # fmt: skip


@pytest.mark.parametrize("rule", SURPRISES)
def test_what_a_switch_would_refuse_or_silently_drop_is_refused_by_the_name_of_the_rule(
    rule: str,
) -> None:
    with pytest.raises(Refused) as caught:
        planned(*SURPRISES[rule])
    assert f"\n  {rule}" in str(caught.value)


def test_a_traffic_class_without_a_queue_is_refused() -> None:
    intent, sonic = whole(), Sonic()
    tables = {name: dict(rows) for name, rows in SWITCH.items()}
    device = intent.device("leaf1")
    want = sonic.render(intent, device).state
    text = json.loads(sonic.write(want))
    for table, rows in tables.items():
        text.setdefault(table, {}).update(rows)
    text["TC_TO_QUEUE_MAP"]["DLCP"].pop("7")
    assert any(
        f.startswith("tc-without-queue: Ethernet0")
        for f in sonic.check(sonic.read(json.dumps(text)), device)
    )


def test_all_findings_are_told_up_to_a_bound() -> None:
    intent, sonic = whole(), Sonic()
    bad = {f"x{number}": {"type": "strict"} for number in range(30)}
    with pytest.raises(Refused, match=r"\.\.\. and \d+ more"):
        plan(intent, intent.device("leaf1"), sonic, sonic.read(json.dumps({"SCHEDULER": bad})))


@pytest.mark.parametrize(
    "tables",
    [
        {"QUEUE": {"Ethernet0|3": {"scheduler": 3}}},
        {"QUEUE": {"Ethernet0|3": ["scheduler"]}},
        {"SWITCH_HASH": {"GLOBAL": {"ecmp_hash": [1]}}},
    ],
)
def test_values_that_are_no_strings_are_one_error(tables: dict[str, Any]) -> None:
    with pytest.raises(BadState):
        Sonic().read(json.dumps(tables))


def test_nothing_is_bound_before_it_is_defined_nor_removed_while_it_is_bound() -> None:
    intent, sonic = whole(), Sonic()
    device = intent.device("leaf1")
    present = sonic.read(json.dumps(SWITCH))
    made = plan(intent, device, sonic, present)
    assert [step.title for step in made.steps] == [
        "define maps and profiles",
        "bind Ethernet0",
        "bind Ethernet4",
        "bind Ethernet8",
        "bind Ethernet40",
        "bind Ethernet60",
    ]
    assert made.disrupts == tuple(f"Ethernet{port} goes down and up" for port in (0, 4, 8, 40, 60))


def test_thresholds_change_in_place_and_take_no_port_down() -> None:
    sonic = Sonic()
    before, then = whole(), whole("mark = [0.2, 0.5]", "mark = [0.1, 0.5]")
    device = before.device("leaf1")
    base = json.loads(sonic.write(sonic.render(before, device).state))
    for table, rows in SWITCH.items():
        base.setdefault(table, {}).update(rows)
    made = plan(then, device, sonic, sonic.read(json.dumps(base)))
    assert [step.title for step in made.steps] == ["define maps and profiles"]
    assert not made.disrupts
    ops = json.loads(made.steps[0].payload)
    assert {op["op"] for op in ops} == {"replace"}
    assert ops[0]["path"].startswith("/WRED_PROFILE/DLCP_Q5/green_min_threshold")


def test_what_is_kept_keeps_its_map_of_priority_groups() -> None:
    intent = whole()
    state = Sonic().render(intent, intent.device("leaf1")).state
    assert not any(place.kind == "TC_TO_PRIORITY_GROUP_MAP" for place in state)
    assert not any(place.field == "tc_to_pg_map" for place in state)
    assert not any(place.name.endswith(("|3", "|4")) for place in state)
