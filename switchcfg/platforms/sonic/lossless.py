"""Lossless classes on SONiC: their settings, and the owner of a port's PFC. Pure.

A port has one list of priorities with PFC (PORT_QOS_MAP, pfc_enable), so its PFC is either
switchcfg's or foreign. It is switchcfg's if the port's pfc_to_queue_map is.

The switch computes headroom from speed and CABLE_LENGTH. In the traditional buffer model,
buffermgrd makes BUFFER_PG and pg_lossless_SPEED_CABLE_profile of each port by its pfc_enable; in
the dynamic one, for rows of BUFFER_PG whose profile is NULL (sonic-swss, buffermgr.cpp; "Dynamic
Buffer Calculation" of sonic-net/SONiC).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import QUEUES, Device, Intent
from switchcfg.plan.queues import Layout
from switchcfg.plan.state import Place, State
from switchcfg.plan.state import tables as tables_of
from switchcfg.platforms.platform import GivenBack, is_ours
from switchcfg.platforms.sonic.accounting import GLOBAL

Tables = Mapping[str, Mapping[str, Mapping[str, str]]]

INDEXES: Final = 16  # of queues that rows may have (sonic-buffer-queue.yang: 0..15)
MOST: Final = 2  # lossless classes: the default buffers of common ASICs have room for 2
MODEL: Final = Place("DEVICE_METADATA", "localhost", "buffer_model")
BUFFER: Final = "egress_lossless_profile"  # of SONiC's buffer templates
INGRESS: Final = "ingress_lossless_pool"
CABLES: Final = "AZURE"  # the row of CABLE_LENGTH in SONiC's templates
HEADROOM: Final = re.compile(r"NULL|pg_lossless_\w+_profile")
MAP_PFC: Final = "MAP_PFC_PRIORITY_TO_QUEUE"
MAP_PG: Final = "TC_TO_PRIORITY_GROUP_MAP"
ONE_CABLE: Final = "cable: a port of SONiC has one length: the longest of its classes"
BELOW: Final = (
    "{0}: its strict queue is below {1}, which is weighted: ASICs differ in which they serve first"
)
NOT_ECT: Final = (
    "{0}: Not-ECT packets are dropped at the ECN thresholds, because a queue has one curve"
)


def degraded(intent: Intent, layouts: Sequence[Layout]) -> Iterator[str]:
    """Deviations of lossless classes on SONiC, in words."""
    top = max((each.priority for each in intent.lossless), default=-1)
    for name in dict.fromkeys(q.name for each in layouts for q in each.queues if q.index < top):
        yield BELOW.format(name, top)
    if len({each.cable for each in intent.lossless}) > 1:
        yield ONE_CABLE
    yield from (NOT_ECT.format(each.name) for each in intent.lossless if each.mark)


def settings(name: str, layout: Layout, ports: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """Settings for a switch without PFC; `name`: of the port group's maps."""
    lossless = layout.lossless
    for priority in range(QUEUES):
        yield Place(MAP_PFC, name, str(priority)), str(priority)
    for tc in range(QUEUES):
        group = tc if tc in [each.priority for each in lossless] else 0
        yield Place(MAP_PG, name, str(tc)), str(group)
    for each in lossless:
        profile = f"{name}_Q{each.priority}"
        yield Place("SCHEDULER", profile, "type"), "DWRR"
        yield Place("SCHEDULER", profile, "weight"), str(each.share)
    cable = max(each.cable for each in lossless)
    for port in ports:
        priorities = ",".join(str(each.priority) for each in lossless)
        yield Place("PORT_QOS_MAP", port, "pfc_enable"), priorities
        yield Place("PORT_QOS_MAP", port, "pfc_to_queue_map"), name
        yield Place("PORT_QOS_MAP", port, "tc_to_pg_map"), name
        if cable:
            yield Place("CABLE_LENGTH", CABLES, port), f"{cable}m"
        for each in lossless:
            key, profile = f"{port}|{each.priority}", f"{name}_Q{each.priority}"
            yield Place("QUEUE", key, "scheduler"), profile
            if each.mark:
                yield Place("QUEUE", key, "wred_profile"), profile
            yield Place("BUFFER_QUEUE", key, "profile"), BUFFER


def binding_of(tables: Tables, port: str) -> Mapping[str, str]:
    """The maps that a port uses. Without its own map of code points, that of the whole switch holds
    (PORT_QOS_MAP|global; SAI_SWITCH_ATTR_QOS_DSCP_TO_TC_MAP of qosorch.cpp)."""
    rows = tables.get("PORT_QOS_MAP", {})
    whole = rows.get(GLOBAL, {}).get("dscp_to_tc_map")
    return ({"dscp_to_tc_map": whole} if whole else {}) | dict(rows.get(port, {}))


def pfc_is_ours(intent: Intent, tables: Tables, port: str) -> bool:
    """Whether switchcfg set the PFC of a port."""
    binding = tables.get("PORT_QOS_MAP", {}).get(port, {})
    return is_ours(intent, binding.get("pfc_to_queue_map", ""))


def pfc_of_others(intent: Intent, tables: Tables, port: str) -> bool:
    """Whether a port has foreign PFC."""
    enabled = tables.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable")
    return bool(enabled) and not pfc_is_ours(intent, tables, port)


def given_back(intent: Intent, device: Device, present: State) -> GivenBack:
    """The effects of a removal on values that have no name of switchcfg."""
    found = tables_of(present)
    back: set[Place] = set()
    for port in found.get("PORT_QOS_MAP", {}):
        if pfc_is_ours(intent, found, port):
            back |= {Place("PORT_QOS_MAP", port, "pfc_enable")} | headroom(found, port, set())
    cables = {
        place: f"CABLE_LENGTH {place.name} {place.field} = {value}"
        for place, value in sorted(present.items())
        if place.kind == "CABLE_LENGTH" and place.field in device.ports and intent.lossless
    }
    return GivenBack({place: None for place in back if place in present}, cables)


def headroom(tables: Tables, port: str, beyond: set[int]) -> set[Place]:
    """A port's headroom in rows with a priority group that is not in `beyond`."""
    found: set[Place] = set()
    for key, fields in tables.get("BUFFER_PG", {}).items():
        members = set(numbered(port, key))
        if members - beyond and HEADROOM.fullmatch(fields.get("profile", "")):
            found |= {Place("BUFFER_PG", key, field) for field in fields}
    return found


def numbered(port: str, key: str) -> Sequence[int]:
    """The numbers of the key PORT|FIRST-LAST; () if it is another port's or invalid."""
    owner, _, numbers = key.rpartition("|")
    first, _, last = numbers.partition("-")
    if owner != port or not (first.isdecimal() and (last or first).isdecimal()):
        return ()
    low, high = int(first), int(last or first)
    return range(low, high + 1) if 0 <= low <= high < INDEXES else ()
