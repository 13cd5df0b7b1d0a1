"""Intent to CONFIG_DB objects: maps, profiles, and bindings of the queues of ports. Pure."""

import math
from collections.abc import Iterator
from typing import Final

from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue, lay_out
from switchcfg.plan.state import Place, State
from switchcfg.platforms.sonic.existing import POOL
from switchcfg.platforms.sonic.lossless import MOST
from switchcfg.platforms.sonic.lossless import settings as lossless_settings
from switchcfg.platforms.sonic.trimming import ACTION, settings

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",), trim=True, lossless=MOST)
LEAST_ALPHA, MOST_ALPHA = -8, 7  # of dynamic_th: a queue may take 2**th of the free buffer


def _name(intent: Intent, group: PortGroup, queue: Queue | None = None) -> str:
    parts = [intent.prefix, group.name, f"Q{queue.index}" if queue else ""]
    return "_".join(filter(None, parts))


def group_state(intent: Intent, group: PortGroup, layout: Layout) -> dict[Place, str]:
    """The state that one port group needs, on its ports and on the switch."""
    state = dict(_maps(intent, group, layout))
    if intent.queueing.trim:
        state |= dict(settings(intent, layout))
    if layout.lossless:
        state |= dict(lossless_settings(_name(intent, group), layout, group.ports))
    for each in layout.lossless:
        state |= _curve(f"{_name(intent, group)}_Q{each.priority}", each.mark)
    for queue in layout.queues:
        state |= _curve(_name(intent, group, queue), queue.mark)
        state |= _buffer(_buffer_name(intent, group, layout, queue), queue)
        if _trims(intent, layout, queue):
            state[Place("BUFFER_PROFILE", _buffer_name(intent, group, layout, queue), ACTION)] = (
                "trim"
            )
    for port in group.ports:
        state |= _bindings(intent, group, layout, port)
    return state


def _maps(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    name = _name(intent, group)
    for dscp, queue in sorted(layout.queue_of(intent).items()):
        yield Place("DSCP_TO_TC_MAP", name, str(dscp)), str(queue)
    for tc in range(QUEUES):
        yield Place("TC_TO_QUEUE_MAP", name, str(tc)), str(tc)
        if not intent.keep.queues:  # kept queues have a foreign map of priority groups
            yield Place("TC_TO_PRIORITY_GROUP_MAP", name, str(tc)), "0"


def _trims(intent: Intent, layout: Layout, queue: Queue) -> bool:
    """Whether a queue trims: all but the first queue, which takes the trimmed packets."""
    return bool(intent.queueing.trim) and queue.index != layout.queues[0].index


def _buffer_name(intent: Intent, group: PortGroup, layout: Layout, queue: Queue) -> str:
    """A queue's buffer profile. A trimming one has another name: neither orchagent nor the
    validators of patches can remove the field again."""
    return _name(intent, group, queue) + "_TRIM" * _trims(intent, layout, queue)


def _curve(name: str, mark: tuple[int, int] | None) -> Iterator[tuple[Place, str]]:
    if mark:
        begin, certain = mark
        for field, value in (
            ("ecn", "ecn_green"),
            ("green_drop_probability", "100"),
            ("green_max_threshold", str(certain)),
            ("green_min_threshold", str(begin)),
            ("wred_green_enable", "true"),
        ):
            yield Place("WRED_PROFILE", name, field), value


def _buffer(name: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    yield Place("BUFFER_PROFILE", name, "pool"), POOL
    yield Place("BUFFER_PROFILE", name, "size"), "0"
    yield Place("BUFFER_PROFILE", name, "dynamic_th"), str(_alpha(queue))


def with_thresholds(intent: Intent, device: Device, state: State, present: State) -> State:
    """The state, with thresholds in bytes for profiles of a static pool, which requires them."""
    out = dict(state)
    for group in device.groups:
        layout = lay_out(intent, group, ABLE)
        for queue in layout.queues:
            profile = _buffer_name(intent, group, layout, queue)
            pool = state[Place("BUFFER_PROFILE", profile, "pool")]
            if present.get(Place("BUFFER_POOL", pool, "mode")) == "static":
                del out[Place("BUFFER_PROFILE", profile, "dynamic_th")]
                out[Place("BUFFER_PROFILE", profile, "static_th")] = str(queue.limit)
    return out


def _alpha(queue: Queue) -> int:
    """log2 of the power of two nearest to share / (1 - share), with which a queue alone takes its
    share."""
    share = min(max(queue.share, 2.0**LEAST_ALPHA), 0.99)
    return min(max(round(math.log2(share / (1 - share))), LEAST_ALPHA), MOST_ALPHA)


def _bindings(
    intent: Intent, group: PortGroup, layout: Layout, port: str
) -> Iterator[tuple[Place, str]]:
    name = _name(intent, group)
    yield Place("PORT_QOS_MAP", port, "dscp_to_tc_map"), name
    yield Place("PORT_QOS_MAP", port, "tc_to_queue_map"), name
    if not intent.keep.queues:
        yield Place("PORT_QOS_MAP", port, "tc_to_pg_map"), name
    for queue in layout.queues:
        key, profile = f"{port}|{queue.index}", _buffer_name(intent, group, layout, queue)
        yield Place("QUEUE", key, "scheduler"), f"{intent.prefix}_STRICT"
        if queue.mark:
            yield Place("QUEUE", key, "wred_profile"), _name(intent, group, queue)
        yield Place("BUFFER_QUEUE", key, "profile"), profile
