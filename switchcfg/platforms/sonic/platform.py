"""Platform SONiC: CONFIG_DB tables as objects, their fields as values. Pure.

Source of value ranges and refusals of orchagent: sonic-yang-models and qosorch.cpp of sonic-swss
(master of 2026-08).
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.queues import lay_out
from switchcfg.plan.state import Change, Owns, Place, State
from switchcfg.platforms.platform import (
    Fit,
    GivenBack,
    Rendered,
    Shell,
    Step,
    Taken,
    is_ours,
    render_groups,
)
from switchcfg.platforms.sonic import asics
from switchcfg.platforms.sonic.accounting import BINDINGS, near
from switchcfg.platforms.sonic.config_db import MAPS, PROFILES, document, read
from switchcfg.platforms.sonic.existing import fit
from switchcfg.platforms.sonic.lossless import degraded, given_back
from switchcfg.platforms.sonic.releases import doubts, refuses
from switchcfg.platforms.sonic.rules import check
from switchcfg.platforms.sonic.scripts import RELOAD_BACK, ROLL_BACK, SNAPSHOT, TIMEOUT, script
from switchcfg.platforms.sonic.shared_keys import touched
from switchcfg.platforms.sonic.steps import patches, reload
from switchcfg.platforms.sonic.trimming import USELESS
from switchcfg.platforms.sonic.trimming import problems as trimming_problems
from switchcfg.platforms.sonic.wanted import ABLE, group_state, with_thresholds

LASTING: Final = ("SWITCH_HASH", "SWITCH_TRIMMING")  # tables of the whole switch
HASH: Final = "SRC_IP,DST_IP,IP_PROTOCOL,L4_SRC_PORT,L4_DST_PORT"


class Sonic:
    """Community SONiC. releases.py lists the releases that take switchcfg's patches."""

    name: Final = "sonic"
    able: Final = ABLE

    def render(self, intent: Intent, device: Device) -> Rendered:
        for each in intent.lossless:
            if each.priority == 0:
                raise CannotExpress(
                    f"{device.name}: lossless: {each.name}: sonic: priority 0 is that of all "
                    "traffic without a priority group of its own, and all of it would pause: give "
                    "the class another priority"
                )
        found = render_groups(intent, device, ABLE, group_state)
        state = dict(found.state)
        state[Place("SCHEDULER", f"{intent.prefix}_STRICT", "type")] = "STRICT"
        if intent.spray == "hash":
            state[Place("SWITCH_HASH", "GLOBAL", "ecmp_hash")] = HASH
        buffers = "shares of the buffer become dynamic thresholds: steps of a factor of two"
        layouts = [lay_out(intent, group, ABLE) for group in device.groups]
        trims = (USELESS,) if intent.queueing.trim else ()
        return Rendered(state, (*found.degraded, buffers, *trims, *degraded(intent, layouts)))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            if place.kind in (*MAPS, *PROFILES):
                return is_ours(intent, place.name)
            return place.kind in BINDINGS and is_ours(intent, value)

        return owns

    def write(self, state: State) -> str:
        return json.dumps(document(state), indent=2) + "\n"

    def read(self, text: str) -> State:
        return read(text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return check(state, device)

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        found = fit(intent, device, rendered, present)
        problems = (*found.problems, *trimming_problems(intent, rendered, present))
        state = with_thresholds(intent, device, found.state, present)
        return replace(found, state=state, problems=problems)

    def near(self, device: Device, present: State) -> Collection[str]:
        return near(device.ports, present)

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        return Taken((), tuple(doubts(present, changes)), tuple(refuses(present, changes)))

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """As `SharedPlatform`, for PFC that switchcfg set, and its headroom."""
        found = given_back(intent, device, present)
        keys = touched(intent, present, {}, found.values.keys())
        # orchagent refuses to remove them (switchorch.cpp of sonic-swss).
        lasting = frozenset(place for place in present if place.kind in LASTING)
        return replace(found, values={**found.values, **dict.fromkeys(keys)}, lasting=lasting)

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return RELOAD_BACK if refuses(before, changes) else ROLL_BACK

    def shell(self, intent: Intent, device: Device) -> Shell:
        tools = ("config", "sonic-cfggen", "sonic-db-cli", "python3")
        ask = f"{asics.ASK}{SNAPSHOT}\n"
        return Shell(ask, tools, script, TIMEOUT, "config save -y >/dev/null\n")

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        if refuses(present, changes):  # planning required the operator's consent
            return (reload(present, changes),)
        return tuple(patches(present, changes))
