"""Kept queues of an NX-OS device: continued in switchcfg's policies, or refused. Pure.

A port has one queuing policy and one classifying policy. switchcfg's queuing policy continues the
share and the limit of kept queues; everything else that a replaced policy does for them is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.commands import number_of
from switchcfg.platforms.nxos.grammar import GRAMMAR
from switchcfg.platforms.nxos.known import MARKS, MATCHES
from switchcfg.platforms.rule import SEPARATOR

CARRIED: Final = ("queue bandwidth", "queue limit")
DEFAULT: Final = "c-out-8q-q-default"
BY_POINT: Final = ("class match", "all match")
BY_OTHER: Final = ("cos match", *(f"class {what}" for what in MATCHES))


def carried(
    intent: Intent, device: Device, state: State, present: State, inherited: str
) -> tuple[dict[Place, str], list[str]]:
    """(the state with shares and limits of kept queues, problems). `inherited`: the queuing policy
    of ports without their own."""
    out, problems = dict(state), list[str]()
    for port in device.ports:
        bound = Place("interface queue", port, "")
        ours, theirs = state[bound], present.get(bound) or inherited
        for place, value in present.items():
            name, *inside = place.name.split(SEPARATOR)
            if name != theirs or place.kind not in CARRIED:
                continue
            if number_of(inside[0]) in intent.keep.queues:
                to = place._replace(name=f"{ours}{SEPARATOR}{inside[0]}")
                if out.setdefault(to, value) != value:
                    problems.append(
                        f"kept: {inside[0]} has {place.kind.removeprefix('queue ')} {value} on "
                        f"{port} and another on a port of its group: give the port its own `group`"
                    )
    for policy in {state[place] for place in state if place.kind == "interface queue"}:
        problems += _shared(policy, out)
    return out, problems


def _shared(policy: str, out: dict[Place, str]) -> Iterator[str]:
    """Leave kept queues their percents: the default queue gets the rest. Problems, if none is."""
    shares = {
        place: int(value)
        for place, value in out.items()
        if place.kind == "queue bandwidth" and place.name.split(SEPARATOR)[0] == policy
    }
    default = Place("queue bandwidth", f"{policy}{SEPARATOR}{DEFAULT}", "")
    over = sum(shares.values()) - 100
    if over > 0 and shares.get(default, 0) > over:
        out[default] = str(shares[default] - over)
    elif over > 0:
        yield (
            f"share: the `bandwidth remaining percent` of {policy!r} sum to {100 + over} with the "
            "kept queues, and at most 100 is possible"
        )


def lost(intent: Intent, policy: str, present: State) -> Iterator[str]:
    """Functions for kept and lossless queues that a policy has and switchcfg's would lack."""
    homes = {dscp: each.priority for each in intent.lossless for dscp in each.dscp}
    homes |= intent.keep.dscp
    how = {each.priority: "lossless" for each in intent.lossless}
    how |= dict.fromkeys(intent.keep.queues, "kept")
    for place, value in present.items():
        name, *inside = place.name.split(SEPARATOR)
        if name != policy or not inside:
            continue
        if place.kind.startswith("queue ") and place.kind not in CARRIED:
            if (queue := number_of(inside[0])) in intent.keep.queues:
                yield f"`{GRAMMAR.begins(place, value)}` in kept queue {queue}"
        elif place.kind == "mark group" and number_of(value) in how:
            where = f"{how[number_of(value)]} queue {value}"
            yield from (
                f"{what} in {where}" for what in _elsewhere(present, inside[0], int(value), homes)
            )
            yield from (
                f"`{mark} {done}` in {where}"
                for mark in MARKS
                if (done := present.get(Place(f"mark {mark}", place.name, "")))
            )


def _elsewhere(present: State, name: str, queue: int, homes: Mapping[int, int]) -> Iterator[str]:
    """Traffic of a class that switchcfg's classifier would not send to a queue, in words."""
    if name == "class-default":
        yield "all other packets"
    elif not any(Place(kind, name, "") in present for kind in (*BY_POINT, *BY_OTHER)):
        yield f"the class {name!r}, of which no `match` is read"
    for kind in BY_POINT:
        for each in filter(None, present.get(Place(kind, name, ""), "").split(",")):
            if not each.isdecimal() or homes.get(int(each)) != queue:
                yield f"code point {each}"
    for kind in BY_OTHER:
        if what := present.get(Place(kind, name, "")):
            first = what.split(",")[0]
            yield f"CoS {first}" if kind == "cos match" else f"`match {kind[6:]} {what}`"


def left_without(
    present: State, then: State, changes: Sequence[Change], controlled: Mapping[str, set[int]]
) -> Iterator[str]:
    """Ports that keep flow control while changes remove the policy that feeds its queues."""
    for change in changes:
        if change.place.kind != "interface mark" or change.after is not None:
            continue
        fed = {
            number_of(group)
            for place, group in present.items()
            if place.kind == "mark group" and place.name.split(SEPARATOR)[0] == change.before
        }
        paused = controlled.get(change.place.name, set())
        if (queues := sorted(fed & paused)) and change.place not in then:
            yield (
                f"lossless: {change.place.name} has PFC on queue {queues[0]}, and the plan would "
                f"remove {change.before!r}, which sends packets there"
            )
