"""Priority groups of SONiC: the ingress buffers that packets of a traffic class use. Pure.

A port with foreign tc_to_pg_map keeps it. Stock maps send traffic class 7 to group 7, for which
stock buffers have no row: upstream gives such a group the lossy profile (sonic-buildimage, pull
request 11157), and so does switchcfg, with a copy that has its own name.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.state import Place, State
from switchcfg.platforms.platform import is_ours
from switchcfg.platforms.sonic.lossless import MAP_PG, Tables, binding_of, numbered

LOSSY: Final = 0  # the group of traffic without its own


def buffered(
    intent: Intent, device: Device, state: State, tables: Tables
) -> tuple[dict[Place, str], list[str]]:
    """(BUFFER_PG rows, and their profile, for groups that switchcfg's traffic classes use and that
    have none; problems)."""
    rows: dict[Place, str] = {}
    problems: list[str] = []
    name = f"{intent.prefix}_PG"
    for port in device.ports:
        there = _profiles(tables, port)
        theirs = {group for group, used in there.items() if not is_ours(intent, used)}
        if not theirs or Place("PORT_QOS_MAP", port, "tc_to_pg_map") in state:
            continue
        for tc, group in _used(state, tables, port):
            if group in theirs:
                continue
            profile = tables.get("BUFFER_PROFILE", {}).get(there.get(LOSSY, ""), {})
            if not profile:
                problems.append(
                    f"group: {port}: traffic class {tc} goes to priority group {group}, which has "
                    "no BUFFER_PG, and group 0 has no profile to copy"
                )
                continue
            rows[Place("BUFFER_PG", f"{port}|{group}", "profile")] = name
            rows |= {
                Place("BUFFER_PROFILE", name, field): v.removeprefix("[BUFFER_POOL|").strip("]")
                for field, v in profile.items()
            }
    return rows, problems


def _profiles(tables: Tables, port: str) -> Mapping[int, str]:
    """Priority group -> buffer profile of a port."""
    return {
        group: fields.get("profile", "")
        for key, fields in tables.get("BUFFER_PG", {}).items()
        for group in numbered(port, key)
    }


def _used(state: State, tables: Tables, port: str) -> Iterator[tuple[int, int]]:
    """(traffic class, priority group) of switchcfg's queues on a port, by the port's map."""
    groups = tables.get(MAP_PG, {}).get(binding_of(tables, port).get("tc_to_pg_map", ""), {})
    for place in state:
        if place.kind == "QUEUE" and place.field == "scheduler":
            owner, _, queue = place.name.rpartition("|")
            group = groups.get(queue, "")
            if owner == port and group.isdecimal():
                yield int(queue), int(group)
