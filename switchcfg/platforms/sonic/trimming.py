"""Packet trimming on SONiC: a packet without buffer is forwarded as its first bytes. Pure.

The whole switch has one size, DSCP and queue (SWITCH_TRIMMING); a queue trims if its buffer profile
says so. Fields, and which cannot be removed again: SONiC's design document "Packet Trimming" and
sonic-trimming.yang; ASICs: gcu_field_operation_validators.conf.json of sonic-utilities.
"""

import re
from collections.abc import Iterator
from typing import Final

from switchcfg.intent.intent import Intent
from switchcfg.plan.queues import Layout
from switchcfg.plan.state import Place, State, tables
from switchcfg.platforms.platform import is_ours
from switchcfg.platforms.sonic.releases import HWSKU, release

FIRST: Final = 202505  # release
# (HWSKUs of ASICs that trim, first release that supports them): Spectrum-4 and 5 and Tomahawk 5,
# then Tomahawk 6.
ASICS: Final = (
    (re.compile(r"(ACS|Mellanox)-SN5(400|600|610N|640)(-.*)?"), FIRST),
    (re.compile(r"(Nokia-IXR7220-H5|Arista-7060X6)-.*"), FIRST),
    (re.compile(r"Nokia-IXR7220-H6-.*"), 202605),
)
ACTION: Final = "packet_discard_action"
USELESS: Final = "trim: of no use to dlcpd: kernels of receivers drop a datagram that was cut short"


def settings(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Lines of SWITCH_TRIMMING: trimmed packets use the DSCP and the queue of the first class."""
    for field, value in (
        ("size", intent.queueing.trim),
        ("dscp_value", intent.classes[0].dscp[0]),
        ("queue_index", layout.queues[0].index),
    ):
        yield Place("SWITCH_TRIMMING", "GLOBAL", field), str(value)


def problems(intent: Intent, rendered: State, present: State) -> Iterator[str]:
    """Why this switch cannot trim as the intent wants; each begins with the rule's name."""
    if not intent.queueing.trim:
        return
    found, hwsku = release(present), present.get(HWSKU, "")
    if found is not None and found < FIRST:
        yield f"trim: SONiC {found or 'before 2023'} does not trim packets: {FIRST} and later do"
    since = next((first for shape, first in ASICS if shape.fullmatch(hwsku)), None)
    if since is None:
        yield (
            f"trim: HWSKU {hwsku or 'unknown'}: SONiC trims on Spectrum-4 and 5, Tomahawk 5 and "
            "6: remove [queues] trim"
        )
    elif found is not None and FIRST <= found < since:
        yield f"trim: HWSKU {hwsku} trims from {since} on, and this is SONiC {found}"
    theirs = [
        name
        for name, row in tables(present).get("BUFFER_PROFILE", {}).items()
        if row.get(ACTION) == "trim" and not is_ours(intent, name)
    ]
    here = {place: present.get(place) for place in rendered if place.kind == "SWITCH_TRIMMING"}
    if theirs and any(value != rendered[place] for place, value in here.items()):
        shown = ", ".join(f"{place.field} {value}" for place, value in here.items())
        yield (
            f"trim: the whole switch trims with {shown}, for BUFFER_PROFILE {', '.join(theirs)}, "
            "and the plan would change that"
        )
