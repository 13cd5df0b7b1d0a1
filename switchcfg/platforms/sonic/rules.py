"""Rules for a whole CONFIG_DB: values that SONiC refuses or silently drops. Pure.

YANG catches some when a patch is applied. Those that only orchagent notices leave a line in syslog
and a value in CONFIG_DB without effect. So all of them are checked before a patch is applied.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from switchcfg.intent.intent import QUEUES, Device
from switchcfg.plan.state import State
from switchcfg.plan.state import tables as tables_of
from switchcfg.platforms.sonic.lossless import INDEXES, binding_of

MAX_NAME: Final = 32  # characters
MAX_INT: Final = 2**31 - 1  # orchagent reads thresholds with stoi, which throws beyond
NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]*")
NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")  # a leading zero is refused by YANG
ECN: Final = (
    "ecn_none", "ecn_green", "ecn_yellow", "ecn_red", "ecn_green_yellow", "ecn_green_red",
    "ecn_yellow_red", "ecn_all",
)  # fmt: skip
COLOURS: Final = ("green", "yellow", "red")
HASH_FIELDS: Final = (
    "IN_PORT", "DST_MAC", "SRC_MAC", "ETHERTYPE", "VLAN_ID", "IP_PROTOCOL", "DST_IP", "SRC_IP",
    "L4_DST_PORT", "L4_SRC_PORT", "INNER_DST_MAC", "INNER_SRC_MAC", "INNER_ETHERTYPE",
    "INNER_IP_PROTOCOL", "INNER_DST_IP", "INNER_SRC_IP", "INNER_L4_DST_PORT",
    "INNER_L4_SRC_PORT", "IPV6_FLOW_LABEL", "RDMA_BTH_OPCODE", "RDMA_BTH_DEST_QP",
)  # fmt: skip
# (table, field) of a reference -> table that must have the object.
REFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("PORT_QOS_MAP", "dscp_to_tc_map"): "DSCP_TO_TC_MAP",
    ("PORT_QOS_MAP", "tc_to_queue_map"): "TC_TO_QUEUE_MAP",
    ("PORT_QOS_MAP", "tc_to_pg_map"): "TC_TO_PRIORITY_GROUP_MAP",
    ("PORT_QOS_MAP", "pfc_to_queue_map"): "MAP_PFC_PRIORITY_TO_QUEUE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
    ("BUFFER_PROFILE", "pool"): "BUFFER_POOL",
}
# Tables whose names YANG restricts; SCHEDULER is not one: its default names are like scheduler.0.
NAMED: Final = ("DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP", "WRED_PROFILE")
# Table -> (largest key, largest value) of its entries; both are numbers.
MAP_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "DSCP_TO_TC_MAP": (63, 15),
    "TC_TO_QUEUE_MAP": (15, 9),  # sonic-tc-queue-map.yang; chips with queues beyond 7
    "TC_TO_PRIORITY_GROUP_MAP": (15, 7),
    "MAP_PFC_PRIORITY_TO_QUEUE": (7, QUEUES - 1),
}


def check(state: State, device: Device) -> list[str]:
    """Problems as `RULE: what is wrong`, in the order of tables."""
    found = dict[str, None]()
    tables = tables_of(state)
    for table, rows in tables.items():
        for key, fields in rows.items():
            found |= dict.fromkeys(_names(table, key))
            found |= dict.fromkeys(_references(tables, table, key, fields))
            if table in MAP_RANGES:
                found |= dict.fromkeys(_map(table, key, fields))
            if rule := RULES.get(table):
                found |= dict.fromkeys(rule(key, fields))
    found |= dict.fromkeys(_device(tables, device))
    return list(found)


def _names(table: str, key: str) -> Iterator[str]:
    if table in NAMED and (len(key) > MAX_NAME or not NAME.fullmatch(key)):
        yield f"name: {table}|{key}: letters, digits, '-' and '_', at most {MAX_NAME}"


def _references(
    tables: Mapping[str, Mapping[str, object]], table: str, key: str, fields: Mapping[str, str]
) -> Iterator[str]:
    for field, value in fields.items():
        target = REFERENCES.get((table, field))
        if target and value.startswith("["):
            yield f"old-reference: {table}|{key} {field}: write the name alone, not {value}"
        elif target and value not in tables.get(target, {}):
            yield f"dangling: {table}|{key} {field}: there is no {target}|{value}"


def _map(table: str, key: str, fields: Mapping[str, str]) -> Iterator[str]:
    most_key, most_value = MAP_RANGES[table]
    for field, value in fields.items():
        if not _within(field, 0, most_key) or not _within(value, 0, most_value):
            yield (
                f"range: {table}|{key} {field} -> {value}: the keys are 0..{most_key}, and the "
                f"values 0..{most_value}"
            )


def _scheduler(key: str, fields: Mapping[str, str]) -> Iterator[str]:
    if fields.get("type") not in ("STRICT", "DWRR", "WRR"):
        yield f"scheduler-type: SCHEDULER|{key}: {fields.get('type')} is not STRICT, DWRR or WRR"
    if "priority" in fields:
        yield (
            f"scheduler-priority: SCHEDULER|{key} priority: YANG accepts it, and orchagent drops "
            "the whole entry"
        )
    if "pir" in fields and "cir" not in fields:
        yield f"scheduler-rate: SCHEDULER|{key}: pir needs cir"
    if "weight" in fields and not _within(fields["weight"], 1, 100):
        yield f"range: SCHEDULER|{key} weight: {fields['weight']} is outside 1..100"


def _wred(key: str, fields: Mapping[str, str]) -> Iterator[str]:
    known = {"ecn"}
    for colour in COLOURS:
        enable, probability = f"wred_{colour}_enable", f"{colour}_drop_probability"
        low, high = f"{colour}_min_threshold", f"{colour}_max_threshold"
        known |= {enable, probability, low, high}
        if fields.get(enable, "false") not in ("true", "false"):
            yield f"boolean: WRED_PROFILE|{key} {enable}: write true or false, in small letters"
        if (low in fields) != (high in fields):
            yield f"threshold-pair: WRED_PROFILE|{key}: {low} and {high} go together"
        for field in (low, high):
            if field in fields and not _within(fields[field], 0, MAX_INT):
                yield f"threshold: WRED_PROFILE|{key} {field}: not within 0..{MAX_INT} bytes"
        if _number(fields.get(low, "0")) > _number(fields.get(high, "0")):
            yield f"threshold-order: WRED_PROFILE|{key}: {low} is above {high}"
        if probability in fields and not _within(fields[probability], 0, 100):
            yield f"range: WRED_PROFILE|{key} {probability}: 0..100"
    if fields.get("ecn", "ecn_none") not in ECN:
        yield f"ecn: WRED_PROFILE|{key}: {fields['ecn']} is not one of {', '.join(ECN)}"
    for field in fields.keys() - known - {""}:
        yield f"unknown-field: WRED_PROFILE|{key} {field}"


def _queue(key: str, _fields: Mapping[str, str]) -> Iterator[str]:
    first, _, last = key.rpartition("|")[2].partition("-")
    low, high = _number(first), _number(last or first)
    if not 0 <= low <= high < INDEXES:
        yield f"queue-index: {key}: the queues are 0..{INDEXES - 1}"


def _buffer_profile(key: str, fields: Mapping[str, str]) -> Iterator[str]:
    if "dynamic_th" in fields and not _within(fields["dynamic_th"], -8, 7):
        yield f"range: BUFFER_PROFILE|{key} dynamic_th: -8..7"
    if fields.get("packet_discard_action", "drop") not in ("drop", "trim"):
        yield f"discard-action: BUFFER_PROFILE|{key}: drop or trim"
    if ("dynamic_th" in fields) == ("static_th" in fields):
        yield f"threshold-kind: BUFFER_PROFILE|{key}: either dynamic_th or static_th"


def _hash(key: str, fields: Mapping[str, str]) -> Iterator[str]:
    for field in ("ecmp_hash", "lag_hash"):
        for each in fields.get(field, HASH_FIELDS[0]).split(","):
            if each not in HASH_FIELDS:
                yield f"hash-field: SWITCH_HASH|{key} {field}: {each}"


def _trimming(key: str, fields: Mapping[str, str]) -> Iterator[str]:
    for field, alternative, most in (
        ("size", "", 2**32 - 1),
        ("dscp_value", "from-tc", 63),
        ("tc_value", "", 255),
        ("queue_index", "dynamic", QUEUES - 1),
    ):
        value = fields.get(field, "0")
        if value != alternative and not _within(value, 0, most):
            yield f"trimming: SWITCH_TRIMMING|{key} {field}: {value} is outside 0..{most}"


RULES: Final = {
    "SCHEDULER": _scheduler,
    "WRED_PROFILE": _wred,
    "QUEUE": _queue,
    "BUFFER_QUEUE": _queue,
    "BUFFER_PROFILE": _buffer_profile,
    "SWITCH_HASH": _hash,
    "SWITCH_TRIMMING": _trimming,
}


def _device(tables: Mapping[str, Mapping[str, Mapping[str, str]]], device: Device) -> Iterator[str]:
    """Problems of a device's ports: missing ports, PFC without maps, classes without a queue."""
    ports = tables.get("PORT", {})
    for port in device.ports:
        if port not in ports:
            yield f"no-port: {device.name} has no {port}"
        binding = binding_of(tables, port)
        for field in ("dscp_to_tc_map", "tc_to_queue_map") if binding.get("pfc_enable") else ():
            if field not in binding:
                yield f"lossless: {port} has PFC and no {field}: nothing would reach its queues"
        used = tables.get("DSCP_TO_TC_MAP", {}).get(binding.get("dscp_to_tc_map", ""), {})
        known = tables.get("TC_TO_QUEUE_MAP", {}).get(binding.get("tc_to_queue_map", ""), {})
        for tc in sorted(set(used.values()) - known.keys()):
            yield f"tc-without-queue: {port}: {binding.get('tc_to_queue_map')} has no tc {tc}"


def _number(text: str) -> int:
    return int(text) if NUMBER.fullmatch(text) else -1


def _within(text: str, low: int, high: int) -> bool:
    return bool(NUMBER.fullmatch(text)) and low <= int(text) <= high
