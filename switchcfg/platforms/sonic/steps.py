"""Changes of CONFIG_DB to steps: a patch per port, or one reload of the switch. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.plan.state import Change, State, after, natural
from switchcfg.platforms.json_patch import merge_patch, patch
from switchcfg.platforms.platform import Step
from switchcfg.platforms.sonic.accounting import BINDINGS
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.shared_keys import SHARED, rows_of, without

RELOADS: Final = "the switch restarts its services: all its ports are down for minutes"
RELOAD: Final = 20  # minutes; services restart and bring ports up in 2 to 5
PATCH: Final = 180  # seconds of `config apply-patch` on a full switch (sonic-buildimage #23945)


Stage = tuple[str, State, tuple[str, ...]]  # title, the state afterwards, effects on traffic


def patches(present: State, changes: Sequence[Change]) -> Iterator[Step]:
    """Define, bind port by port, remove: no binding ever dangles.

    One patch that unbinds and removes took upstream's sorter 146 steps and 97 s; two patches took
    22 steps and 4.5 s. A binding takes its port down, so each port is a step.
    """
    now = present
    for title, then, disrupts in _stages(present, changes):
        payload = json.dumps(patch(document(now), document(then)), indent=2)
        yield Step(title, payload + "\n", disrupts, lasts=PATCH)
        now = then


def _stages(present: State, changes: Sequence[Change]) -> Iterator[Stage]:
    """Keys of several ports end first, or are made again last."""
    keys = [change for change in changes if change.place.kind == SHARED]
    ended = [change.place.name for change in keys if change.after is None]
    made = [change.place.name for change in keys if change.after is not None]
    now: State = present
    if ended:
        yield "remove keys of several ports", without(now, ended, rows=True), _paused(ended)
        now = without(now, ended, rows=False)
        yield "write a key per port", now, ()
    rest = [change for change in changes if change.place.kind != SHARED]
    define = [c for c in rest if c.place.kind not in BINDINGS and c.after is not None]
    remove = [c for c in rest if c.place.kind not in BINDINGS and c.after is None]
    bind: dict[str, list[Change]] = {}
    for change in rest:
        if change.place.kind in BINDINGS:
            bind.setdefault(change.place.name.partition("|")[0], []).append(change)
    for title, part, disrupts in (
        ("define maps and profiles", define, ()),
        *(
            (f"bind {port}", bind[port], (f"{port} goes down and up",))
            for port in sorted(bind, key=natural)
        ),
        ("remove maps and profiles", remove, ()),
    ):
        if part:
            now = after(now, part)
            yield title, now, disrupts
    if made:
        yield "remove keys of single ports", without(now, made, rows=True), _paused(made)
        yield (
            "write keys of several ports",
            after(now, [c for c in keys if c.after is not None]),
            (),
        )


def _paused(names: Sequence[str]) -> tuple[str, ...]:
    """orchagent ends the settings of a key's queues when the key goes, whatever was set since, so
    the key goes before other keys are written."""
    ports = {key.partition("|")[0] for name in names for _, key in rows_of(name)}
    return tuple(
        f"{port} goes down and up, without the settings of its queues in between"
        for port in sorted(ports, key=natural)
    )


def reload(present: State, changes: Sequence[Change]) -> Step:
    """One step: the switch reloads its configuration with the changes."""
    then = document(after(present, changes))
    payload = json.dumps(merge_patch(document(present), then), indent=2)
    return Step("reload the switch", f"{payload}\n", (RELOADS,), RELOAD)
