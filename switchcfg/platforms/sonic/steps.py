"""Changes of CONFIG_DB to steps: a patch per port, or one reload of the switch. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.plan.state import Change, State, after, natural
from switchcfg.platforms.json_patch import merge_patch, patch
from switchcfg.platforms.platform import Step
from switchcfg.platforms.sonic.accounting import BINDINGS
from switchcfg.platforms.sonic.config_db import document

RELOADS: Final = "the switch restarts its services: all its ports are down for minutes"
RELOAD: Final = 20  # minutes; services restart and bring ports up in 2 to 5


def patches(present: State, changes: Sequence[Change]) -> Iterator[Step]:
    """Define, bind port by port, remove: no binding ever dangles.

    One patch that unbinds and removes took upstream's sorter 146 steps and 97 s; two patches took
    22 steps and 4.5 s. A binding takes its port down, so each port is a step.
    """
    define = [c for c in changes if c.place.kind not in BINDINGS and c.after is not None]
    remove = [c for c in changes if c.place.kind not in BINDINGS and c.after is None]
    bind: dict[str, list[Change]] = {}
    for change in changes:
        if change.place.kind in BINDINGS:
            bind.setdefault(change.place.name.partition("|")[0], []).append(change)
    now = dict(present)
    for title, part, disrupts in (
        ("define maps and profiles", define, ()),
        *(
            (f"bind {port}", bind[port], (f"{port} goes down and up",))
            for port in sorted(bind, key=natural)
        ),
        ("remove maps and profiles", remove, ()),
    ):
        if part:
            then = after(now, part)
            payload = json.dumps(patch(document(now), document(then)), indent=2)
            yield Step(title, payload + "\n", disrupts)
            now = then


def reload(present: State, changes: Sequence[Change]) -> Step:
    """One step: the switch reloads its configuration with the changes."""
    then = document(after(present, changes))
    payload = json.dumps(merge_patch(document(present), then), indent=2)
    return Step("reload the switch", f"{payload}\n", (RELOADS,), RELOAD)
