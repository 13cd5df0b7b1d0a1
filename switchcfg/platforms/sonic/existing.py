"""Adapts the wanted state to the configuration that a SONiC switch has. Pure.

The factory configuration serves RoCE: maps called AZURE, priority flow control on 3 and 4, and
rows of BUFFER_QUEUE for ranges of queues (sonic-buildimage, qos_config.j2 and buffers_config.j2).
Mappings to kept queues must stay; a queue that is not kept must not have foreign flow control.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.kept import kept, lossless
from switchcfg.plan.state import Place, State
from switchcfg.plan.state import tables as tables_of
from switchcfg.platforms.platform import Fit
from switchcfg.platforms.sonic.coexist import coexist
from switchcfg.platforms.sonic.groups import buffered
from switchcfg.platforms.sonic.lossless import INDEXES, binding_of, pfc_is_ours
from switchcfg.platforms.sonic.shared_keys import touched

HASH: Final = "SWITCH_HASH"
DSCP_MAP: Final = "DSCP_TO_TC_MAP"
POOL: Final = "egress_lossy_pool"  # of most of SONiC's buffer templates
# Tables whose keys are PORT|QUEUE, or PORT|FIRST-LAST for several queues.
PER_QUEUE: Final = ("QUEUE", "BUFFER_QUEUE")
Tables = Mapping[str, Mapping[str, Mapping[str, str]]]


def fit(intent: Intent, device: Device, rendered: State, present: State) -> Fit:
    """The wanted state, adapted to `present`. Raises nothing: conflicts are in `problems`."""
    tables = tables_of(present)
    state, problems = dict(rendered), list[str]()
    for port in device.ports:
        problems += _lossless(intent, tables, port)
        problems += _by_vlan_priority(intent, tables, port)
        keeps, wrong = kept(intent, port, _today(tables, port))
        problems += wrong
        name = rendered.get(Place("PORT_QOS_MAP", port, "dscp_to_tc_map"), "")
        for dscp, queue in keeps.items():
            place = Place(DSCP_MAP, name, str(dscp))
            if state.get(place) not in (rendered.get(place), str(queue)):
                problems.append(
                    f"kept-dscp: {port}: code point {dscp} goes to queue {queue} today, and to "
                    "another on a port of the same group: give the port its own `group`"
                )
            state[place] = str(queue)
    coexisting = coexist(intent, device, state, tables)
    state = dict(coexisting.state)
    problems += coexisting.problems
    pool = _pool(device, tables)
    if pool is None:
        pools = ", ".join(sorted(_egress(tables)))
        problems.append(f"pool: {device.name} has {pools}: choose one with [[device]] pool = ...")
    else:
        for place in rendered:
            if place.kind == "BUFFER_PROFILE" and place.field == "pool":
                state[place] = pool
    split, gives_way = _split(device, state, tables)
    groups, wrong = buffered(intent, device, state, tables)
    problems += [*wrong, *_hash(intent, device, state, tables)]
    state |= split | groups
    gives_way |= coexisting.gives_way
    gives_way |= touched(intent, present, state, gives_way)
    return Fit(state, gives_way, tuple(dict.fromkeys(problems)))


def _bound(tables: Tables, port: str, field: str, table: str) -> Mapping[str, str]:
    """The map that a port uses; {}: none."""
    return tables.get(table, {}).get(binding_of(tables, port).get(field, ""), {})


def _lossless(intent: Intent, tables: Tables, port: str) -> Iterator[str]:
    """Problems of queues with foreign flow control that a traffic class would use."""
    if pfc_is_ours(intent, tables, port):
        return
    enabled = binding_of(tables, port).get("pfc_enable", "")
    queues = _bound(tables, port, "pfc_to_queue_map", "MAP_PFC_PRIORITY_TO_QUEUE")
    for priority in filter(None, enabled.split(",")):
        queue = queues.get(priority, priority)
        if queue.isdecimal():
            yield from lossless(intent, port, int(queue))


def _by_vlan_priority(intent: Intent, tables: Tables, port: str) -> Iterator[str]:
    """Problems of kept queues that a port without a map of code points feeds by VLAN priority."""
    if "dscp_to_tc_map" in binding_of(tables, port):
        return
    tcs = _bound(tables, port, "dot1p_to_tc_map", "DOT1P_TO_TC_MAP")
    queues = _bound(tables, port, "tc_to_queue_map", "TC_TO_QUEUE_MAP")
    for priority, tc in sorted(tcs.items()):
        queue = queues.get(tc, tc)
        if queue in map(str, intent.keep.queues):
            yield (
                f"kept-pcp: {port}: VLAN priority {priority} goes to queue {queue} today, which is "
                "kept, and the plan would send packets by their code point"
            )


def _hash(intent: Intent, device: Device, state: State, tables: Tables) -> Iterator[str]:
    """Problems of foreign hash fields of the whole switch, which the plan would replace."""
    for field, there in tables.get(HASH, {}).get("GLOBAL", {}).items():
        wanted = state.get(Place(HASH, "GLOBAL", field), there)
        if wanted != there and HASH not in intent.keep.replaces:
            yield (
                f"kept: {device.name}: {field} is {there}, and the plan would replace it: write "
                f'spray = "keep", or name {HASH!r} in [keep] replaces'
            )


def _today(tables: Tables, port: str) -> dict[int, tuple[int, int]]:
    """Code point -> (traffic class, queue); values that are not numbers are left to the rules."""
    tcs = _bound(tables, port, "dscp_to_tc_map", DSCP_MAP)
    queues = _bound(tables, port, "tc_to_queue_map", "TC_TO_QUEUE_MAP")
    return {
        int(dscp): (int(tc), int(queues.get(tc, tc)))
        for dscp, tc in tcs.items()
        if dscp.isdecimal() and tc.isdecimal() and queues.get(tc, tc).isdecimal()
    }


# --- buffers -----------------------------------------------------------------------------


def _egress(tables: Tables) -> list[str]:
    pools = tables.get("BUFFER_POOL", {})
    return [name for name, fields in pools.items() if fields.get("type") in ("egress", "both")]


def _pool(device: Device, tables: Tables) -> str | None:
    """The buffer pool of switchcfg's queues; None: there are several, and the choice is unclear.

    Not every template has egress_lossy_pool: many have one egress pool.
    """
    there = _egress(tables)
    if device.pool or POOL in there or not there:
        return device.pool or POOL  # if it is absent, the rules report a dangling reference
    return there[0] if len(there) == 1 else None


def _split(
    device: Device, wanted: State, tables: Tables
) -> tuple[dict[Place, str], frozenset[Place]]:
    """(rows to add, values to remove): a row for a range that includes queues of switchcfg becomes
    one row for each other queue.

    SONiC's own commands refuse overlapping rows; which row applies depends on their order.
    """
    rows: dict[Place, str] = {}
    gives_way: set[Place] = set()
    for table in PER_QUEUE:
        ours = {place.name for place in wanted if place.kind == table}
        for key, fields in tables.get(table, {}).items():
            port, _, queues = key.rpartition("|")
            members = [f"{port}|{index}" for index in _range(queues)]
            if port not in device.ports or len(members) < 2 or not ours.intersection(members):
                continue
            gives_way |= {Place(table, key, field) for field in fields}
            rows |= {
                Place(table, member, field): value
                for member in members
                if member not in ours and member not in tables[table]
                for field, value in fields.items()
            }
    return rows, frozenset(gives_way)


def _range(text: str) -> Sequence[int]:
    """The queues of FIRST-LAST; () for other or invalid text."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        return ()
    low, high = int(first), int(last)
    return range(low, high + 1) if 0 <= low <= high < INDEXES else ()
