"""Ours beside what a SONiC switch from the factory has: RoCE on queues 3 and 4."""

from typing import Any

import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import State, after
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.stock import sonic_roce, sonic_text

SONIC = Sonic()
PORTS = ("Ethernet0", "Ethernet4")
KEEP = "[keep]\nqueues = [3, 4]\n"


def intent(keep: str = KEEP, more: str = "", classes: str = "") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}{classes}[[device]]\nname = "leaf"\n'
        f'platform = "sonic"\n{more}[[device.ports]]\nnames = ["Ethernet[0-4/4]"]\n'
        'rate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(tables: dict[str, Any], wanted: tuple[Intent, Device]) -> tuple[State, Plan]:
    present = SONIC.read(sonic_text(tables))
    return present, plan(*wanted, SONIC, present)


def then(tables: dict[str, Any], wanted: tuple[Intent, Device]) -> dict[str, Any]:
    present, made = planned(tables, wanted)
    return document(after(present, made.changes))


def problems(tables: dict[str, Any], wanted: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(tables, wanted)
    return str(caught.value)


def test_roce_that_is_kept_loses_no_line() -> None:
    before = sonic_roce(PORTS)
    found = then(before, intent())
    for table in ("WRED_PROFILE", "SCHEDULER", "MAP_PFC_PRIORITY_TO_QUEUE", "BUFFER_POOL"):
        for key, fields in before[table].items():
            assert found[table][key] == fields
    for port in PORTS:
        assert found["BUFFER_QUEUE"][f"{port}|3-4"] == {"profile": "egress_lossless_profile"}
        for queue in (3, 4):
            assert found["QUEUE"][f"{port}|{queue}"] == before["QUEUE"][f"{port}|{queue}"]
        binding = found["PORT_QOS_MAP"][port]
        ours = {"dscp_to_tc_map": "DLCP", "tc_to_queue_map": "DLCP"}
        assert binding == before["PORT_QOS_MAP"][port] | ours
    # Code points of RoCE reach the queues that they reached.
    points = found["DSCP_TO_TC_MAP"]["DLCP"]
    assert (points["3"], points["4"]) == ("3", "4")


def test_a_second_plan_is_empty_and_both_ways_back_end_where_they_began() -> None:
    found, leaf = intent()
    present, made = planned(sonic_roce(PORTS), (found, leaf))
    applied = after(present, made.changes)
    assert not plan(found, leaf, SONIC, applied).changes
    assert after(applied, reverse(found, made, leaf, SONIC, applied).changes) == present


@pytest.mark.parametrize("ecn", ["true", "false"])
def test_a_lossless_queue_that_is_not_kept_is_refused(ecn: str) -> None:
    wanted = intent(keep=f"[queues]\necn = {ecn}\n")
    said = problems(sonic_roce(PORTS), wanted)
    assert "lossless: Ethernet0 queue 3 has PFC: name it in [keep] queues" in said
    assert "lossless: Ethernet4 queue 4 has PFC" in said


def test_a_priority_of_another_queue_is_meant_by_that_queue() -> None:
    tables = sonic_roce(PORTS)
    tables["MAP_PFC_PRIORITY_TO_QUEUE"]["AZURE"]["4"] = "6"
    assert "queue 6 has PFC" in problems(tables, intent())


def test_what_the_intent_says_of_kept_code_points_must_be_so() -> None:
    said = problems(sonic_roce(PORTS), intent(KEEP + "[keep.dscp]\n24 = 3\n"))
    assert "kept-dscp: Ethernet0: code point 24 goes to queue 1 today, not to 3" in said


def test_a_class_may_not_take_a_code_point_of_what_is_kept() -> None:
    tables = sonic_roce(PORTS)
    tables["DSCP_TO_TC_MAP"]["AZURE"]["26"] = "3"
    assert "code point 26 goes to queue 3 today, which is kept, and class" in problems(
        tables, intent()
    )


def test_a_traffic_class_of_another_number_is_not_kept_by_ours() -> None:
    tables = sonic_roce(PORTS)
    tables["TC_TO_QUEUE_MAP"]["AZURE"] |= {"5": "4"}
    assert "kept-tc: Ethernet0: code point 46" in problems(tables, intent())


def test_ports_of_one_group_that_keep_different_code_points_are_told() -> None:
    tables = sonic_roce(PORTS)
    tables["DSCP_TO_TC_MAP"]["OTHER"] = tables["DSCP_TO_TC_MAP"]["AZURE"] | {"3": "4"}
    tables["PORT_QOS_MAP"]["Ethernet4"]["dscp_to_tc_map"] = "OTHER"
    assert "Ethernet4: code point 3 goes to queue 4 today, and to another" in problems(
        tables, intent()
    )


def test_removal_that_would_leave_lossless_traffic_without_a_map_is_refused() -> None:
    present, made = planned(sonic_roce(PORTS), intent())
    with pytest.raises(Refused, match="lossless: Ethernet0 has PFC and no dscp_to_tc_map"):
        removal(*intent(), SONIC, after(present, made.changes))


def test_removal_is_not_refused_for_what_was_wrong_before() -> None:
    tables = sonic_roce(PORTS)
    del tables["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"]
    assert not removal(*intent(), SONIC, SONIC.read(sonic_text(tables))).changes


# --- ranges, pools -----------------------------------------------------------------------


def queues_of(rows: dict[str, Any], port: str) -> dict[str, Any]:
    return {key.rpartition("|")[2]: row for key, row in rows.items() if key.startswith(f"{port}|")}


def test_ranges_give_way_to_one_row_for_each_queue() -> None:
    tables = sonic_roce(PORTS)
    found = then(tables, intent(KEEP, classes=CLASSES))
    rows = queues_of(found["BUFFER_QUEUE"], "Ethernet0")
    assert sorted(rows) == ["0", "1", "2", "3-4", "5", "6", "7"]
    assert rows["0"] == rows["1"] == {"profile": "egress_lossy_profile"}
    assert rows["7"]["profile"].startswith("DLCP")
    assert not plan(*intent(KEEP, classes=CLASSES), SONIC, SONIC.read(sonic_text(found))).changes


# Four queues from the top: 7, 6, 5, 2.
CLASSES = "[classes]\n" + "".join(
    f'{name} = {{ rank = {rank}, dscp = [{dscp}], ecn = ["ect0"] }}\n'
    for rank, (name, dscp) in enumerate({"a": 40, "b": 41, "c": 42, "d": 43}.items())
)


def test_a_range_that_is_not_ours_stays() -> None:
    tables = sonic_roce(PORTS)
    tables["BUFFER_QUEUE"] |= {"Ethernet96|0-2": {"profile": "egress_lossy_profile"}}
    tables["PORT"]["Ethernet96"] = {"lanes": "96", "speed": "100000"}
    assert "Ethernet96|0-2" in then(tables, intent())["BUFFER_QUEUE"]


def profiles(found: dict[str, Any]) -> list[dict[str, str]]:
    return [row for name, row in found["BUFFER_PROFILE"].items() if name.startswith("DLCP_Q")]


def test_the_pool_is_the_one_that_there_is() -> None:
    for pool in ("egress_lossy_pool", "egress_lossless_pool"):
        found = then(sonic_roce(PORTS, pool=pool), intent())
        assert {row["pool"] for row in profiles(found)} == {pool}
        # A static pool counts bytes.
        assert all(
            ("static_th" in row) == (pool == "egress_lossless_pool") for row in profiles(found)
        )


def test_of_several_pools_the_intent_names_one() -> None:
    tables = sonic_roce(PORTS, pool="egress_pool_a")
    assert "pool: leaf has egress_lossless_pool, egress_pool_a: choose one" in problems(
        tables, intent()
    )
    found = then(tables, intent(more='pool = "egress_pool_a"\n'))
    assert {row["pool"] for row in profiles(found)} == {"egress_pool_a"}


def test_a_pool_that_is_not_there_is_named() -> None:
    tables = sonic_roce(PORTS)
    assert "there is no BUFFER_POOL|nowhere" in problems(tables, intent(more='pool = "nowhere"\n'))


# --- the examples, on a switch from the factory -------------------------------------------

EXPECTED = {  # what each is refused for; "" = it is planned
    "brownfield": "kept-dscp: Ethernet0: code point 24 goes to queue 1 today, not to 3",
    "eight_classes": "lossless: Ethernet0 queue 3 has PFC",
    "minimal": "lossless: Ethernet0 queue 3 has PFC",
    "roce": "lossless-dscp: Ethernet0: code point 3 goes to queue 3 today, which has PFC",
    "no_ecn": "lossless: Ethernet0 queue 3 has PFC",
    "two_drop_precedences": "lossless: Ethernet0 queue 3 has PFC",
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_on_a_switch_with_roce(example: str) -> None:
    wanted = parse(EXAMPLES[example], example)
    [device] = [each for each in wanted.devices if each.platform == "sonic"]
    present = SONIC.read(sonic_text(sonic_roce(device.ports)))
    with pytest.raises(Refused) as caught:
        plan(wanted, device, SONIC, present)
    assert EXPECTED[example] in str(caught.value)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (
            {"localhost": {}, "asic0": {"PORT": {}}, "asic1": {}},
            "a switch with several ASICs: each",
        ),
        (
            {"DEVICE_METADATA": {"localhost": {"asic_name": "asic1", "sub_role": "BackEnd"}}},
            r"one ASIC of several \(BackEnd\): each ASIC has its own CONFIG_DB",
        ),
    ],
)
def test_a_switch_of_several_asics_is_refused_by_name(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(BadState, match=says):
        SONIC.read(sonic_text(tables))


def test_a_processor_of_a_smart_switch_is_refused_by_its_type() -> None:
    tables = sonic_roce(PORTS)
    tables["DEVICE_METADATA"] = {"localhost": {"switch_type": "dpu"}}
    with pytest.raises(BadState, match="switch_type 'dpu': a processor of a SmartSwitch"):
        SONIC.read(sonic_text(tables))


@pytest.mark.parametrize("kind", ["voq", "fabric"])
def test_a_switch_of_virtual_output_queues_is_refused_by_its_type(kind: str) -> None:
    """orchagent drops keys of two parts there: `malformed key ... Must contain 4 tokens`."""
    tables = sonic_roce(PORTS)
    tables["DEVICE_METADATA"] = {"localhost": {"asic_name": "Asic0", "switch_type": kind}}
    with pytest.raises(BadState, match=f"switch_type '{kind}': keys of its queues"):
        SONIC.read(sonic_text(tables))
