"""The account of a CONFIG_DB: each row near QoS is read, of no matter, or unread. Pure.

Sources of tables and fields: sonic-yang-models (sonic-port-qos-map, sonic-queue, sonic-scheduler,
sonic-wred-profile, sonic-buffer-*), qosorch.cpp and bufferorch.cpp of sonic-swss.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from switchcfg.plan.account import SWITCH, UNREAD, Item, KnownLine, reached
from switchcfg.plan.state import State

BINDINGS: Final = ("QUEUE", "PORT_QOS_MAP", "BUFFER_QUEUE", "BUFFER_PG")
GLOBAL: Final = "global"  # the key of PORT_QOS_MAP for the whole switch
# Tables that have something to do with QoS, known or not
QOS: Final = re.compile(
    r"\w*(DSCP|QUEUE|BUFFER|PFC|WRED|SCHEDULER|QOS|DOT1P|TRIMMING)\w*|"
    r"(\w+_)?(TC|FC|EXP|POLICER|HASH)(_\w+)?"
)
FILTERS: Final = "ACL_RULE"
POLICIES: Final = "POLICY_BINDING_TABLE"
# Table -> its fields that change code points, queues or rates: actions of filters (sonic-acl;
# aclorch.h), and policies of flow-based services (their design document, "CONFIG_DB Changes")
CHANGES: Final = {
    FILTERS: re.compile(r"\w*(DSCP|TC|QUEUE|PRIORITY|COLOR|POLICER|META_DATA)\w*_ACTION"),
    POLICIES: re.compile(r"(INGRESS|EGRESS)_QOS_POLICY"),
}
_COLOUR: Final = "(green|yellow|red)"
_FIELDS: Final = {
    "PORT_QOS_MAP": (
        "dscp_to_tc_map|tc_to_queue_map|tc_to_pg_map|pfc_to_queue_map|pfc_to_pg_map|pfc_enable|"
        "pfcwd_sw_enable|dot1p_to_tc_map"
    ),
    "QUEUE": "scheduler|wred_profile",
    "BUFFER_QUEUE": "profile",
    "BUFFER_PG": "profile",
    "SCHEDULER": "type|weight|priority|meter_type|cir|cbs|pir|pbs",
    "WRED_PROFILE": (
        rf"ecn|wred_{_COLOUR}_enable|{_COLOUR}_(min_threshold|max_threshold|drop_probability)"
    ),
    "BUFFER_PROFILE": (
        "pool|size|dynamic_th|static_th|xon|xoff|xon_offset|packet_discard_action|headroom_type"
    ),
    "BUFFER_POOL": "type|mode|size|xoff|percentage",
    "SWITCH_HASH": "(ecmp|lag)_hash(_algorithm)?",
    "SWITCH_TRIMMING": "size|dscp_value|tc_value|queue_index",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": r"\d+",
    "MAP_PFC_PRIORITY_TO_QUEUE": r"\d+",
    "DSCP_TO_TC_MAP": r"\d+",
    "DOT1P_TO_TC_MAP": r"\d+",
    "TC_TO_QUEUE_MAP": r"\d+",
    "TC_TO_PRIORITY_GROUP_MAP": r"\d+",
    "TC_TO_DSCP_MAP": r"\d+",
}
_READ: Final = {table: re.compile(f"({fields})?") for table, fields in _FIELDS.items()}
_PORT_KEY: Final = re.compile(r"[^|,]+(\|[^|,]+)?")  # the rules check the numbers of queues


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(shape), why)


IDLE: Final = (
    _known(r"PFC_WD\|.*", "guards flow control, and a plan does not"),
    _known(r"PORT_QOS_MAP\|\S+ scheduler .*", "shapes the whole port, as before"),
    _known(r"PORT_QOS_MAP\|\S+ mpls_tc_to_tc_map .*", "of MPLS"),
    _known(
        r"(BUFFER_PORT_(IN|E)GRESS_PROFILE_LIST|DEFAULT_LOSSLESS_BUFFER_PARAMETER|"
        r"LOSSLESS_TRAFFIC_PATTERN|BUFFER_POOL_WATERMARK\w*|\w*WATERMARK\w*|FLEX_COUNTER\w*|"
        r"\w*QUEUE_COUNTER\w*|DEVICE_NEIGHBOR\w*|POLICER|PORT_STORM_CONTROL|TC_TO_DOT1P_MAP|"
        r"MPLS_TC_TO_TC_MAP|DSCP_TO_FC_MAP|EXP_TO_FC_MAP|FG_\w+|PBH_HASH\w*)\|.*",
        "stays, and has effect only where something refers to it",
    ),
)
REFUSED: Final = (
    _known(
        r"PORT_QOS_MAP\|\S+ (tc_to_dscp_map|tc_to_dot1p_map) .*",
        "rewrites code points on the way out, and dlcpd's must leave as they came: remove it",
    ),
    _known(
        rf"{FILTERS}\|.*",
        "a filter that changes code points or queues, and dlcpd's must leave as they came: remove "
        "it",
    ),
    _known(
        rf"{POLICIES}\|.*",
        "a policy that chooses queues or code points of packets: remove it",
    ),
    _known(
        r"(QUEUE|PORT_QOS_MAP|BUFFER_QUEUE|BUFFER_PG)\|[^| ]*,.*",
        "a key for several ports that overlaps another key: write a key per port",
    ),
    _known(
        r"(QUEUE|BUFFER_QUEUE)\|[^| ]+\|[^| ]+\|.*",
        "a key of a VOQ switch, which switchcfg does not support: remove this device",
    ),
)


def items(tables: Mapping[str, object]) -> Iterator[tuple[Item, tuple[str, str, str]]]:
    """(item, (table, key, field)) of each field of a table near QoS."""
    for table, rows in tables.items():
        if not isinstance(rows, dict) or not (QOS.fullmatch(table) or table in CHANGES):
            continue
        for key, fields in rows.items():
            owners = _owners(table, key)
            values = fields if isinstance(fields, dict) else {}
            for field, value in (values or {"": ""}).items():
                if table in CHANGES and not CHANGES[table].fullmatch(field):
                    continue
                text = f"{table}|{key} {field} {value}".rstrip()
                yield Item(owners, text, text), (table, key, field)


def _owners(table: str, key: str) -> tuple[str, ...]:
    if table == POLICIES and key != "switch" and not key.startswith("Vlan"):
        return (key,)
    if table not in _READ or table in ("SWITCH_HASH", "SWITCH_TRIMMING", "BUFFER_POOL"):
        return (SWITCH,)
    if table not in BINDINGS:
        return (f"{table}|{key}",)
    if key == GLOBAL or key.count("|") > 1:
        return (SWITCH,)
    return tuple(key.partition("|")[0].split(","))


def known(line: tuple[str, str, str]) -> bool:
    """Whether switchcfg understands the field of a row."""
    table, key, field = line
    if table == "PORT_QOS_MAP" and key == GLOBAL:
        return field in ("", "dscp_to_tc_map")
    if table in BINDINGS and not _PORT_KEY.fullmatch(key):
        return False
    return table in _READ and bool(_READ[table].fullmatch(field))


def near(ports: Collection[str], present: State) -> set[str]:
    """The whole switch, the ports, and all maps and profiles that they use."""
    bound = [
        value
        for place, value in present.items()
        if place.kind in BINDINGS and place.name.partition("|")[0] in (*ports, GLOBAL)
    ]
    used = {each for value in bound for each in value.split(",")}
    owners = {place.name for place in present if place.kind == UNREAD}
    return reached([SWITCH, *ports, *(o for o in owners if o.partition("|")[2] in used)], {})
