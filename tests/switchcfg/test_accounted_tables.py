"""Each row of CONFIG_DB near QoS is read, of no matter, or refused.

Rows are of sonic-buildimage's device templates and of sonic-yang-models.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import CannotExpress, Refused
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import Place, after
from switchcfg.platforms.sonic.platform import Sonic
from tests.switchcfg.accounted import PORTS, planned, refusal, wanted
from tests.switchcfg.stock import sonic_roce, sonic_text

SONIC = Sonic()
KEEP = "queues = [3, 4]"


def stock() -> dict[str, Any]:
    return sonic_roce(PORTS["sonic"])


def test_a_stock_switch_is_read_whole() -> None:
    made = planned("sonic", sonic_text(stock()), KEEP)
    assert made.read[0] == made.read[1] > 100


@pytest.mark.parametrize(
    ("table", "key", "fields"),
    [
        ("PORT_QOS_MAP", "Ethernet0,Ethernet4", {"pfc_enable": "3,4"}),
        ("QUEUE", "Ethernet0,Ethernet4|3", {"scheduler": "scheduler.1"}),
        ("BUFFER_QUEUE", "Ethernet0,Ethernet4|0-2", {"profile": "egress_lossy_profile"}),
        ("BUFFER_PG", "Ethernet4,Ethernet0|3-4", {"profile": "pg_lossless_100000_40m_profile"}),
        ("QUEUE", "Ethernet8,Ethernet0|2-5", {"scheduler": "scheduler.0"}),
    ],
)
@pytest.mark.parametrize("keep", [KEEP, ""])
def test_a_key_for_several_ports_that_overlaps_another_is_refused(
    table: str, key: str, fields: dict[str, str], keep: str
) -> None:
    tables = stock()
    tables[table][key] = fields
    said = refusal("sonic", sonic_text(tables), keep)
    assert f'"{table}|{key} ' in said
    assert "a key for several ports" in said


def test_the_map_of_the_whole_switch_holds_for_ports_without_one() -> None:
    tables = stock()
    for row in tables["PORT_QOS_MAP"].values():
        del row["dscp_to_tc_map"]
    tables["PORT_QOS_MAP"]["global"] = {"dscp_to_tc_map": "AZURE"}
    present = SONIC.read(sonic_text(tables))
    made = plan(*wanted("sonic", KEEP), SONIC, present)
    then = after(present, made.changes)
    assert [then[Place("DSCP_TO_TC_MAP", "DLCP", each)] for each in ("3", "4")] == ["3", "4"]
    assert not plan(*wanted("sonic", KEEP), SONIC, then).changes
    with pytest.raises(Refused, match="Ethernet0 has PFC and no tc_to_queue_map"):
        removal(*wanted("sonic", KEEP), SONIC, then)
    # A class of ours with a code point of the kept queue.
    tables["DSCP_TO_TC_MAP"]["AZURE"]["34"] = "3"
    assert "code point 34 goes to queue 3 today" in refusal("sonic", sonic_text(tables), KEEP)


@pytest.mark.parametrize(
    ("table", "key"), [("BUFFER_QUEUE", "Ethernet0|5-9"), ("QUEUE", "Ethernet0|8"),
                       ("QUEUE", "Ethernet4|8-9"), ("BUFFER_QUEUE", "Ethernet4|10-15")]
)  # fmt: skip
def test_queues_beyond_7_are_read_and_stay(table: str, key: str) -> None:
    tables = stock()
    row = {"scheduler": "scheduler.0"} if table == "QUEUE" else {"profile": "egress_lossy_profile"}
    tables[table].pop("Ethernet0|5-6" if "5-" in key else "", None)
    tables[table][key] = row
    present = SONIC.read(sonic_text(tables))
    then = after(present, plan(*wanted("sonic", KEEP), SONIC, present).changes)
    port, _, queues = key.partition("|")
    [(field, value)] = row.items()
    last = queues.partition("-")[2] or queues
    assert value in {
        then.get(Place(table, key, field)),
        then.get(Place(table, f"{port}|{last}", field)),
    }


def test_a_foreign_map_may_have_queues_8_and_9() -> None:
    """Stock maps of chips with ten queues; sonic-tc-queue-map.yang."""
    tables = stock()
    tables["TC_TO_QUEUE_MAP"]["TEN"] = {"7": "9", "8": "8"}
    assert planned("sonic", sonic_text(tables), KEEP).changes


def test_pfc_of_priority_0_is_refused() -> None:
    row = '[[lossless]]\nname = "roce"\npriority = 0\ndscp = [24]\nshare = 10\n'
    with pytest.raises(CannotExpress, match="priority 0 is that of all traffic"):
        SONIC.render(*wanted("sonic", "", row))


@pytest.mark.parametrize(
    ("table", "key", "field", "value"),
    [
        ("PORT_QOS_MAP", "Ethernet0", "tc_to_dscp_map", "REMARK"),
        ("PORT_QOS_MAP", "Ethernet0", "tc_to_dot1p_map", "REMARK"),
        ("PORT_QOS_MAP", "Ethernet4", "dscp_to_fc_map", "FC"),
        ("PORT_QOS_MAP", "global", "tc_to_dscp_map", "REMARK"),
        ("QUEUE", "Ethernet0|3", "shaper", "s"),
        ("SCHEDULER", "scheduler.1", "burst", "9"),
        ("BUFFER_PROFILE", "egress_lossless_profile", "alpha", "9"),
        ("BUFFER_POOL", "egress_lossy_pool", "shared", "9"),
        ("DSCP_TO_TC_MAP", "AZURE", "default", "3"),
        ("TC_QUEUE_WEIGHTS", "AZURE", "3", "9"),
        ("QUEUE", "lc1|Asic0|Ethernet0|3", "scheduler", "scheduler.1"),
    ],
)
def test_a_field_that_is_not_known_is_refused_where_it_is_bound(
    table: str, key: str, field: str, value: str
) -> None:
    tables = stock()
    tables.setdefault(table, {}).setdefault(key, {})[field] = value
    assert f'"{table}|{key} {field} {value}"' in refusal("sonic", sonic_text(tables), KEEP)


@pytest.mark.parametrize(
    ("table", "key", "field"),
    [
        ("PFC_WD", "Ethernet0", "action"),
        ("PORT_QOS_MAP", "Ethernet0", "scheduler"),
        ("BUFFER_PORT_EGRESS_PROFILE_LIST", "Ethernet0", "profile_list"),
        ("PORT_QOS_MAP", "Ethernet8", "tc_to_dscp_map"),
        ("SCHEDULER", "unused", "burst"),
    ],
)
def test_what_stays_or_is_far_is_of_no_matter(table: str, key: str, field: str) -> None:
    tables = stock()
    tables.setdefault(table, {}).setdefault(key, {"type": "DWRR"} if table == "SCHEDULER" else {})
    tables[table][key][field] = "X"
    assert planned("sonic", sonic_text(tables), KEEP).changes


def test_a_kept_queue_that_is_fed_by_vlan_priority_is_refused() -> None:
    tables = stock()
    tables["DOT1P_TO_TC_MAP"] = {"AZURE": {str(each): str(each) for each in range(8)}}
    for row in tables["PORT_QOS_MAP"].values():
        row["dot1p_to_tc_map"] = "AZURE"
    assert planned("sonic", sonic_text(tables), KEEP).changes  # packets go by their code point
    for row in tables["PORT_QOS_MAP"].values():
        del row["dscp_to_tc_map"]
    said = refusal("sonic", sonic_text(tables), KEEP)
    assert "kept-pcp: Ethernet0: VLAN priority 3 goes to queue 3 today, which is kept" in said


def test_a_hash_of_others_is_replaced_only_with_consent() -> None:
    tables = stock()
    tables["SWITCH_HASH"] = {"GLOBAL": {"ecmp_hash": ["INNER_SRC_IP", "INNER_DST_IP"]}}
    text = sonic_text(tables)
    assert planned("sonic", text, KEEP).changes  # spray = "keep"
    of = wanted("sonic", KEEP)
    hashed = replace(of[0], spray="hash")
    with pytest.raises(Refused, match="kept: leaf: ecmp_hash is INNER_SRC_IP,INNER_DST_IP"):
        plan(hashed, of[1], SONIC, SONIC.read(text))
    consent = replace(hashed, keep=replace(hashed.keep, replaces=("SWITCH_HASH",)))
    assert plan(consent, of[1], SONIC, SONIC.read(text)).changes


def test_traffic_classes_of_ours_reach_a_priority_group_with_a_buffer() -> None:
    """Stock maps send traffic class 7 to group 7, and stock buffers have groups 0, 3 and 4.
    Upstream gives such groups the lossy profile (sonic-buildimage, pull request 11157)."""
    present = SONIC.read(sonic_text(stock()))
    made = plan(*wanted("sonic", KEEP), SONIC, present)
    then = after(present, made.changes)
    for port in PORTS["sonic"]:
        assert then[Place("BUFFER_PG", f"{port}|7", "profile")] == "DLCP_PG"
        assert then[Place("BUFFER_PG", f"{port}|3-4", "profile")].startswith("pg_lossless")
    theirs = {p.field: v for p, v in present.items() if p.name == "ingress_lossy_profile"}
    ours = {p.field: v for p, v in then.items() if p[:2] == ("BUFFER_PROFILE", "DLCP_PG")}
    assert ours == theirs
    assert not plan(*wanted("sonic", KEEP), SONIC, then).changes
    tables = stock()
    tables["BUFFER_PROFILE"]["ingress_lossy_profile"]["pool"] = "[BUFFER_POOL|egress_lossy_pool]"
    said = refusal("sonic", sonic_text(tables), KEEP)
    assert "BUFFER_PROFILE|ingress_lossy_profile pool: write the name alone" in said
    assert "DLCP_PG" not in said  # the copy has the new form
    tables = stock()
    for port in PORTS["sonic"]:
        del tables["BUFFER_PG"][f"{port}|0"]
    assert (
        "group: Ethernet0: traffic class 7 goes to priority group 7, which has no BUFFER_PG"
        in refusal("sonic", sonic_text(tables), KEEP)
    )


@given(data=st.data())
def test_a_field_that_changes_is_read_so_or_refused(data: st.DataObject) -> None:
    tables = stock()
    was = dict(SONIC.read(sonic_text(tables)))
    names = sorted(tables.keys() - {"VERSIONS", "DEVICE_METADATA", "PORT"})
    table = data.draw(st.sampled_from(names))
    key = data.draw(st.sampled_from(sorted(tables[table])))
    field = data.draw(st.sampled_from(sorted(tables[table][key])))
    where = data.draw(st.sampled_from(["table", "key", "field", "value"]))
    if where == "table":
        tables[f"{table}2"] = tables.pop(table)
    elif where == "key":
        tables[table][key + data.draw(st.sampled_from(["x", ",Ethernet8", "|9"]))] = tables[
            table
        ].pop(key)
    elif where == "field":
        tables[table][key][f"{field}x"] = tables[table][key].pop(field)
    else:
        tables[table][key][field] += "7"
    assert dict(SONIC.read(sonic_text(tables))) != was
