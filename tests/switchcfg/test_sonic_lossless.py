"""Lossless classes on SONiC: beside PFC that is there already, and where there is none."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import plan, removal, reverse
from switchcfg.plan.state import after
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_sonic_present import PORTS, planned, problems, then
from tests.switchcfg.test_sonic_releases import CONSENT, refused_by_the_switch

SONIC = Sonic()
# As the factory's switch has them: DWRR 15 and a curve from 1 to 2 MiB; code points 3 and 4.
STOCK = """
[[lossless]]
name = "roce"
priority = 3
dscp = [3]
share = 15
mark = [1048576, 2097152]
[[lossless]]
name = "storage"
priority = 4
dscp = [4]
share = 15
mark = [1048576, 2097152]
"""
ROCE = """
[[lossless]]
name = "roce"
priority = 3
dscp = [24]
share = 60
cable = "300m"
cnp = 47
"""
KEEP_4 = "[keep]\nqueues = [4]\n"
TAKE = '[keep]\nreplaces = ["scheduler.1", "AZURE_LOSSLESS"]\n'


def intent(lossless: str, keep: str = "", more: str = "") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}{lossless}[[device]]\nname = "leaf"\n'
        f'platform = "sonic"\n{more}[[device.ports]]\nnames = ["Ethernet[0-4/4]"]\n'
        'rate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def bare() -> dict[str, Any]:
    """A switch whose PFC somebody has turned off, headroom and all."""
    tables = sonic_roce(PORTS)
    for binding in tables["PORT_QOS_MAP"].values():
        for field in ("pfc_enable", "pfcwd_sw_enable", "pfc_to_queue_map"):
            del binding[field]
    tables["BUFFER_PG"] = {
        key: row for key, row in tables["BUFFER_PG"].items() if key.endswith("|0")
    }
    return tables


def again(tables: dict[str, Any], wanted: tuple[Intent, Device]) -> dict[str, Any]:
    """What it is then; a second plan changes nothing."""
    found = then(tables, wanted)
    present = SONIC.read(sonic_text(found))
    assert not plan(*wanted, SONIC, present).changes
    return {**tables, **found}


# --- PFC that is there ------------------------------------------------------------------


def test_what_does_what_the_intent_says_is_used_as_it_is() -> None:
    before = sonic_roce(PORTS)
    found = again(before, intent(STOCK))
    for table in (
        "MAP_PFC_PRIORITY_TO_QUEUE",
        "TC_TO_PRIORITY_GROUP_MAP",
        "CABLE_LENGTH",
    ):
        assert found[table] == before[table]
    more = {f"{port}|7": {"profile": "DLCP_PG"} for port in PORTS}  # of traffic class 7
    assert found["BUFFER_PG"] == before["BUFFER_PG"] | more
    assert set(found["SCHEDULER"]) - set(before["SCHEDULER"]) == {"DLCP_STRICT"}
    assert {"DLCP_Q3", "DLCP_Q4"}.isdisjoint(found["WRED_PROFILE"])
    for port in PORTS:
        theirs, ours = before["PORT_QOS_MAP"][port], found["PORT_QOS_MAP"][port]
        maps = {"dscp_to_tc_map": "DLCP", "tc_to_queue_map": "DLCP"}
        assert ours == theirs | maps
        assert found["BUFFER_QUEUE"][f"{port}|3-4"] == {"profile": "egress_lossless_profile"}
        for queue in (3, 4):
            assert found["QUEUE"][f"{port}|{queue}"] == before["QUEUE"][f"{port}|{queue}"]
    points = found["DSCP_TO_TC_MAP"]["DLCP"]
    assert (points["3"], points["4"], points["26"]) == ("3", "4", "5")


def test_another_share_and_other_marks_need_a_word() -> None:
    said = problems(sonic_roce(PORTS), intent(ROCE.replace("[24]", "[3, 24]"), KEEP_4))
    assert (
        "kept: Ethernet0 queue 3 has scheduler 'scheduler.1', DWRR 15, and the intent says DWRR "
        "60: write share = 15, or name 'scheduler.1' in [keep] replaces"
    ) in said
    assert (
        "kept: Ethernet0 queue 3 has wred_profile 'AZURE_LOSSLESS', which marks 1048576 to "
        "2097152, and the intent says 150000 to 1500000: write mark = [1048576, 2097152], or name "
        "'AZURE_LOSSLESS' in [keep] replaces"
    ) in said
    strict = sonic_roce(PORTS)
    strict["SCHEDULER"]["scheduler.1"] = {"type": "STRICT"}
    assert "STRICT, and the intent says DWRR 15: which is not DWRR" in problems(
        strict, intent(STOCK)
    )


def test_what_the_intent_names_is_replaced_and_pfc_stays_theirs() -> None:
    before = sonic_roce(PORTS)
    text = ROCE.replace("[24]", "[3, 24]")
    assert (
        'kept: Ethernet0 has CABLE_LENGTH 40m, and the intent says 300m: write cable = "40m", or '
        "name 'AZURE' in [keep] replaces"
    ) in problems(before, intent(text, TAKE + "queues = [4]\n"))
    keep = TAKE.replace('LOSSLESS"', 'LOSSLESS", "AZURE"') + "queues = [4]\n"
    wanted = intent(text, keep)
    found = again(before, wanted)
    for port in PORTS:
        row = {"scheduler": "DLCP_Q3", "wred_profile": "DLCP_Q3"}
        assert found["QUEUE"][f"{port}|3"] == row
        assert found["QUEUE"][f"{port}|4"] == before["QUEUE"][f"{port}|4"]
        for field in ("pfc_enable", "pfc_to_queue_map", "tc_to_pg_map", "pfcwd_sw_enable"):
            assert found["PORT_QOS_MAP"][port][field] == before["PORT_QOS_MAP"][port][field]
        assert found["CABLE_LENGTH"]["AZURE"][port] == "300m"
    assert found["SCHEDULER"]["DLCP_Q3"] == {"type": "DWRR", "weight": "60"}
    assert found["WRED_PROFILE"]["DLCP_Q3"]["green_max_threshold"] == "1500000"
    assert "DLCP" not in found["MAP_PFC_PRIORITY_TO_QUEUE"]
    assert "DLCP" not in found["TC_TO_PRIORITY_GROUP_MAP"]
    # Without the names, and with the intent gone back to what is there, it is as at first.
    with pytest.raises(Refused, match="lossless: Ethernet0 has PFC and no dscp_to_tc_map"):
        removal(*wanted, SONIC, SONIC.read(sonic_text(found)))


def test_one_of_the_two_may_be_theirs() -> None:
    marks = ROCE.replace("[24]", "[3]").replace("share = 60", "share = 15")
    marks = marks.replace("300m", "40m")
    keep = '[keep]\nqueues = [4]\nreplaces = ["AZURE_LOSSLESS"]\n'
    found = again(sonic_roce(PORTS), intent(marks, keep))
    row = {"scheduler": "scheduler.1", "wred_profile": "DLCP_Q3"}
    assert found["QUEUE"]["Ethernet0|3"] == row
    assert "DLCP_Q3" not in found["SCHEDULER"]


def test_a_row_for_both_queues_stays_where_nothing_of_it_differs() -> None:
    tables = sonic_roce(PORTS)
    for port in PORTS:
        row = tables["QUEUE"].pop(f"{port}|3")
        del tables["QUEUE"][f"{port}|4"]
        tables["QUEUE"][f"{port}|3-4"] = row
    found = again(tables, intent(STOCK))
    assert "Ethernet0|3-4" in found["QUEUE"]
    assert "Ethernet0|3" not in found["QUEUE"]
    taken = again(tables, intent(STOCK.replace("share = 15", "share = 30", 1), TAKE))
    assert "Ethernet0|3-4" not in taken["QUEUE"]
    assert taken["QUEUE"]["Ethernet0|3"]["scheduler"] == "DLCP_Q3"
    assert taken["QUEUE"]["Ethernet0|4"] == row


def test_what_others_left_open_is_ours_to_say() -> None:
    tables = sonic_roce(PORTS)
    for port in PORTS:
        tables["QUEUE"][f"{port}|3"] = {}
    row = {"scheduler": "DLCP_Q3", "wred_profile": "DLCP_Q3"}
    assert again(tables, intent(STOCK))["QUEUE"]["Ethernet0|3"] == row
    silent = STOCK.replace("mark = [1048576, 2097152]", "ecn = false", 1)
    found = again(tables, intent(silent))
    assert found["QUEUE"]["Ethernet0|3"] == {"scheduler": "DLCP_Q3"}


def test_once_it_is_ours_it_changes_without_another_word() -> None:
    first = again(sonic_roce(PORTS), intent(STOCK.replace("share = 15", "share = 30", 1), TAKE))
    found = again(first, intent(STOCK.replace("share = 15", "share = 40", 1)))
    assert found["SCHEDULER"]["DLCP_Q3"]["weight"] == "40"


def test_a_class_without_ecn_ends_theirs_where_it_is_named() -> None:
    text = STOCK.replace("mark = [1048576, 2097152]", "ecn = false", 1)
    assert "which marks 1048576 to 2097152, and the intent says none: write mark" in problems(
        sonic_roce(PORTS), intent(text)
    )
    found = again(sonic_roce(PORTS), intent(text, TAKE))
    assert found["QUEUE"]["Ethernet0|3"] == {"scheduler": "scheduler.1"}
    assert found["QUEUE"]["Ethernet0|4"]["wred_profile"] == "AZURE_LOSSLESS"
    tables = sonic_roce(PORTS)
    tables["WRED_PROFILE"]["AZURE_LOSSLESS"]["ecn"] = "ecn_none"
    assert (
        "which marks none, and the intent says 1048576 to 2097152: write ecn = false"
        in problems(tables, intent(text))
    )


def test_pfc_that_is_not_in_the_intent_is_to_be_kept() -> None:
    one = STOCK.split('[[lossless]]\nname = "storage"', maxsplit=1)[0]
    assert "lossless: Ethernet0 queue 4 has PFC: name it in [keep] queues" in problems(
        sonic_roce(PORTS), intent(one)
    )
    found = again(sonic_roce(PORTS), intent(one, KEEP_4))
    assert found["DSCP_TO_TC_MAP"]["DLCP"]["4"] == "4"


def test_code_points_that_are_protected_today_are_not_left_out() -> None:
    said = problems(sonic_roce(PORTS), intent(STOCK.replace("dscp = [3]", "dscp = [24]")))
    assert "lossless-dscp: Ethernet0: code point 3 goes to queue 3 today" in said
    # Once the map is ours, an intent may name others.
    found = again(sonic_roce(PORTS), intent(STOCK.replace("[3]", "[3, 24]")))
    fewer = again(found, intent(STOCK.replace("dscp = [3]", "dscp = [24]")))
    assert fewer["DSCP_TO_TC_MAP"]["DLCP"]["3"] != "3"


def test_pfc_of_others_on_other_priorities_cannot_be_added_to() -> None:
    text = STOCK.replace("priority = 4", "priority = 5").replace("dscp = [4]", "dscp = [5]")
    assert (
        "lossless: Ethernet0 has foreign PFC on 3,4, and not on 5: a port has one list of "
        "priorities: add 5 to pfc_enable there"
    ) in problems(sonic_roce(PORTS), intent(text, KEEP_4))


@pytest.mark.parametrize(
    ("table", "key", "value", "says"),
    [
        ("TC_TO_PRIORITY_GROUP_MAP", "5", "3",
         "traffic classes 3, 5 go to priority group 3 by AZURE, not 3 alone"),
        ("TC_TO_PRIORITY_GROUP_MAP", "3", "0", "traffic classes none go to priority group 3"),
        ("MAP_PFC_PRIORITY_TO_QUEUE", "3", "5",
         "PFC of priority 3 pauses queue 5 by AZURE, not 3"),
    ],
)  # fmt: skip
def test_maps_of_others_that_contradict_are_named(
    table: str, key: str, value: str, says: str
) -> None:
    tables = sonic_roce(PORTS)
    tables[table]["AZURE"][key] = value
    assert says in problems(tables, intent(STOCK, "[keep]\nqueues = [5]\n"))


def test_a_map_from_priorities_to_groups_has_to_know_it() -> None:
    for tables, wanted in (
        (sonic_roce(PORTS), intent(STOCK)),
        (bare(), intent(ROCE)),
    ):
        tables["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"3": "3", "4": "4"}}
        for port in PORTS:
            tables["PORT_QOS_MAP"][port]["pfc_to_pg_map"] = "AZURE"
        assert again(tables, wanted)
        tables["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"]["AZURE"] = {"3": "2"}
        says = "lossless: Ethernet0: priority 3 belongs to priority group 2 by AZURE (pfc_to_pg_map"
        assert says in problems(tables, wanted)
        tables["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"]["AZURE"] = {"5": "5"}
        assert "priority 3 belongs to priority group none by AZURE" in problems(tables, wanted)


# --- no PFC yet -----------------------------------------------------------------------------


def test_where_there_is_no_pfc_ours_is_made() -> None:
    before = bare()
    found = again(before, intent(ROCE))
    assert found["SCHEDULER"]["DLCP_Q3"] == {"type": "DWRR", "weight": "60"}
    assert found["MAP_PFC_PRIORITY_TO_QUEUE"]["DLCP"]["3"] == "3"
    groups = found["TC_TO_PRIORITY_GROUP_MAP"]["DLCP"]
    assert groups == {str(tc): "3" if tc == 3 else "0" for tc in range(8)}
    points = found["DSCP_TO_TC_MAP"]["DLCP"]
    assert (points["24"], points["47"], points["48"]) == ("3", "7", "7")
    for port in PORTS:
        binding = found["PORT_QOS_MAP"][port]
        assert binding["pfc_enable"] == "3"
        assert binding["pfc_to_queue_map"] == binding["tc_to_pg_map"] == "DLCP"
        row = {"scheduler": "DLCP_Q3", "wred_profile": "DLCP_Q3"}
        assert found["QUEUE"][f"{port}|3"] == row
        assert found["CABLE_LENGTH"]["AZURE"][port] == "300m"
        # Queue 4 is one of ours now, so the range is split; 3 keeps what it had by it.
        assert found["BUFFER_QUEUE"][f"{port}|3"] == {"profile": "egress_lossless_profile"}
        assert found["BUFFER_QUEUE"][f"{port}|4"] == {"profile": "DLCP_Q4"}
    assert found["BUFFER_PG"] == before["BUFFER_PG"]  # the switch makes its own


def test_a_queue_that_was_not_lossless_gets_a_copy_of_the_buffer_of_those_that_are() -> None:
    before = bare()
    for port in PORTS:
        before["BUFFER_QUEUE"][f"{port}|3-4"] = {"profile": "egress_lossy_profile"}
    found = again(before, intent(ROCE))
    assert found["BUFFER_QUEUE"]["Ethernet0|3"] == {"profile": "DLCP_Q3"}
    before["BUFFER_QUEUE"]["Ethernet0|3-4"] = {"profile": "egress_lossless_profile"}
    found = again(before, intent(ROCE))
    assert found["BUFFER_QUEUE"]["Ethernet0|3"] == {"profile": "egress_lossless_profile"}
    assert found["BUFFER_QUEUE"]["Ethernet4|3"] == {"profile": "DLCP_Q3"}
    lossless = before["BUFFER_PROFILE"]["egress_lossless_profile"]
    assert found["BUFFER_PROFILE"]["DLCP_Q3"] == lossless
    del before["BUFFER_PROFILE"]["egress_lossless_profile"]
    assert "lossless: leaf has no BUFFER_PROFILE|egress_lossless_profile" in problems(
        before, intent(ROCE)
    )


def test_headroom_needs_a_length() -> None:
    tables = bare()
    text = ROCE.replace('cable = "300m"\n', "")
    assert again(tables, intent(text))["CABLE_LENGTH"] == tables["CABLE_LENGTH"]
    tables["CABLE_LENGTH"]["AZURE"]["Ethernet4"] = "0m"
    said = problems(tables, intent(text))
    assert (
        "lossless: Ethernet4 has no CABLE_LENGTH, from which the switch computes headroom" in said
    )
    assert "Ethernet0" not in said
    del tables["CABLE_LENGTH"]
    assert "Ethernet0 has no CABLE_LENGTH" in problems(tables, intent(text))
    assert again(tables, intent(ROCE))["CABLE_LENGTH"]["AZURE"]["Ethernet0"] == "300m"


def test_headroom_has_to_fit_into_its_pool() -> None:
    tables = bare()
    profile = tables["BUFFER_PROFILE"]["pg_lossless_100000_40m_profile"]
    pool = tables["BUFFER_POOL"]["ingress_lossless_pool"]
    tables["PORT"]["Ethernet8"] = {"lanes": "8", "speed": "100000"}
    tables["BUFFER_PG"]["Ethernet8|3-4"] = {"profile": "pg_lossless_100000_40m_profile"}
    four = ROCE.replace("300m", "40m")
    pool["size"] = str(4 * int(profile["size"]))
    assert again(tables, intent(four))
    pool["size"] = str(4 * int(profile["size"]) - 1)
    assert (
        "headroom: leaf: 4 priority groups need 200704 bytes, and "
        "ingress_lossless_pool has only 200703"
    ) in problems(tables, intent(four))
    assert again(tables, intent(ROCE))  # what 300 m take nobody says
    pool["size"] = "1"
    assert then(tables, intent("", "[keep]\nqueues = [3, 4]\n"))  # of no lossless class of ours
    pool["xoff"] = "65536"  # shared: it may be dealt out several times over
    assert again(tables, intent(four))


def test_lengths_go_into_the_row_that_there_is() -> None:
    tables = bare()
    tables["CABLE_LENGTH"] = {"LAB": {"Ethernet0": "5m", "Ethernet8": "5m"}}
    found = again(tables, intent(ROCE))["CABLE_LENGTH"]
    assert found == {"LAB": {"Ethernet0": "300m", "Ethernet4": "300m", "Ethernet8": "5m"}}


def test_a_dynamic_buffer_model_is_asked_for_headroom() -> None:
    tables = bare()
    tables["DEVICE_METADATA"]["localhost"]["buffer_model"] = "dynamic"
    found = again(tables, intent(ROCE))
    assert found["BUFFER_PG"]["Ethernet0|3"] == {"profile": "NULL"}
    # What the factory asks for 3 and 4 is too much for 3 alone.
    for port in PORTS:
        tables["BUFFER_PG"][f"{port}|3-4"] = {"profile": "NULL"}
    found = again(tables, intent(ROCE))
    assert sorted(found["BUFFER_PG"]) == [
        "Ethernet0|0",
        "Ethernet0|3",
        "Ethernet4|0",
        "Ethernet4|3",
    ]
    both = STOCK.replace("share = 15", 'share = 15\ncable = "5m"')
    assert sorted(again(tables, intent(both))["BUFFER_PG"]) == sorted(tables["BUFFER_PG"])


def test_groups_of_kept_traffic_classes_stay() -> None:
    tables = bare()
    found = again(tables, intent(ROCE, "[keep]\nqueues = [5]\n"))
    assert found["TC_TO_PRIORITY_GROUP_MAP"]["DLCP"]["5"] == "0"
    tables["TC_TO_PRIORITY_GROUP_MAP"]["AZURE"]["5"] = "7"
    found = again(tables, intent(ROCE, "[keep]\nqueues = [5]\n"))
    assert found["TC_TO_PRIORITY_GROUP_MAP"]["DLCP"]["5"] == "7"
    other = dict(tables["TC_TO_PRIORITY_GROUP_MAP"]["AZURE"], **{"5": "6"})
    tables["TC_TO_PRIORITY_GROUP_MAP"]["OTHER"] = other
    tables["PORT_QOS_MAP"]["Ethernet4"]["tc_to_pg_map"] = "OTHER"
    assert "kept: Ethernet4: traffic class 5 goes to priority group 6, and to another" in problems(
        tables, intent(ROCE, "[keep]\nqueues = [5]\n")
    )


# --- ways back -------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_ways_back_end_where_they_began(dynamic: bool) -> None:
    tables = bare()
    if dynamic:
        tables["DEVICE_METADATA"]["localhost"]["buffer_model"] = "dynamic"
    wanted = intent(ROCE)
    present, made = planned(tables, wanted)
    applied = after(present, made.changes)
    assert after(applied, reverse(wanted[0], made, wanted[1], SONIC, applied).changes) == present
    now = document(applied)
    if not dynamic:  # what buffermgrd makes of it
        for port in PORTS:
            now["BUFFER_PG"][f"{port}|3"] = {"profile": "pg_lossless_100000_300m_profile"}
    gone = removal(*wanted, SONIC, SONIC.read(sonic_text(now)))
    assert gone.degraded == (
        "stays, because it is kept or differs from the intent: CABLE_LENGTH "
        "AZURE Ethernet0 = 300m; "
        "CABLE_LENGTH AZURE Ethernet4 = 300m",
    )
    left = document(after(SONIC.read(sonic_text(now)), gone.changes))
    assert "DLCP" not in str(left)
    assert left["BUFFER_PG"] == tables["BUFFER_PG"]
    for port in PORTS:
        assert "pfc_enable" not in left.get("PORT_QOS_MAP", {}).get(port, {})
    # What the whole switch has of others is untouched.
    for table in ("BUFFER_POOL", "MAP_PFC_PRIORITY_TO_QUEUE", "TC_TO_PRIORITY_GROUP_MAP"):
        assert left[table] == tables[table]


def test_an_intent_that_drops_a_class_ends_its_pfc_and_another_moves_it() -> None:
    first = again(bare(), intent(ROCE))
    for port in PORTS:
        first["BUFFER_PG"][f"{port}|3"] = {"profile": "pg_lossless_100000_300m_profile"}
    none = again(copy.deepcopy(first), intent("", "[keep]\nqueues = [3]\n"))
    assert "pfc_enable" not in none["PORT_QOS_MAP"]["Ethernet0"]
    assert "pfc_to_queue_map" not in none["PORT_QOS_MAP"]["Ethernet0"]
    assert "DLCP" not in none["MAP_PFC_PRIORITY_TO_QUEUE"]
    assert "Ethernet0|3" not in none["BUFFER_PG"]
    moved = ROCE.replace("priority = 3", "priority = 4")
    other = again(copy.deepcopy(first), intent(moved, more="reload = true\n"))
    assert other["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == "4"
    assert "Ethernet0|3" not in other["BUFFER_PG"]


def test_a_port_that_leaves_the_intent_loses_our_pfc_alone() -> None:
    first = again(bare(), intent(ROCE))
    first["PORT"]["Ethernet8"] = {"lanes": "8", "speed": "100000"}
    first["PORT_QOS_MAP"]["Ethernet8"] = {
        "pfc_enable": "3",
        "pfc_to_queue_map": "AZURE",
        "dscp_to_tc_map": "AZURE",
        "tc_to_queue_map": "AZURE",
    }
    for key in ("Ethernet0|3", "Ethernet4|3", "Ethernet8|3", "Ethernet4|all"):
        first["BUFFER_PG"][key] = {"profile": "pg_lossless_100000_300m_profile"}
    wanted, device = intent(ROCE)
    [group] = device.groups
    fewer = replace(device, groups=(replace(group, ports=("Ethernet0",)),))
    found = then(first, (wanted, fewer))
    assert "pfc_enable" not in found["PORT_QOS_MAP"].get("Ethernet4", {})
    assert found["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == "3"
    assert found["PORT_QOS_MAP"]["Ethernet8"] == first["PORT_QOS_MAP"]["Ethernet8"]
    assert found["BUFFER_PG"] == {
        key: row for key, row in first["BUFFER_PG"].items() if key != "Ethernet4|3"
    }


# --- releases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["version_202405_02", "version_202505_01"])
def test_pfc_that_no_patch_takes_back_needs_consent(version: str) -> None:
    tables = again(bare(), intent(ROCE))
    tables["VERSIONS"]["DATABASE"]["VERSION"] = version
    longer = ROCE.replace("300m", "40m")
    said = problems(tables, intent(longer))
    assert "cannot undo a patch that sets PFC or the length of a cable" in said
    assert CONSENT in said
    present, made = planned(tables, intent(longer, more="reload = true\n"))
    assert [step.title for step in made.steps] == ["reload the switch"]
    assert not refused_by_the_switch(present, after(present, made.changes))  # the patch itself


def test_the_plan_says_what_is_less_exact() -> None:
    _, made = planned(bare(), intent(ROCE))
    assert (
        "roce: Not-ECT packets are dropped at the ECN thresholds, because a queue has one curve"
    ) in made.degraded
    assert (
        "bulk: its strict queue is below 3, which is weighted: ASICs differ in "
        "which they serve first"
    ) in made.degraded
    assert not [text for text in made.degraded if text.startswith("front: its queue is strict")]
    two = STOCK.replace("share = 15", 'share = 15\ncable = "40m"', 1)
    _, made = planned(bare(), intent(two))
    assert any("port of SONiC has one length" in text for text in made.degraded)
    _, made = planned(bare(), intent(STOCK))
    assert not any("port of SONiC has one length" in text for text in made.degraded)
