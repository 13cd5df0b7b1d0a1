"""A plan as readable text: changes, effects on traffic, degraded parts. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.intent.port_ranges import compact, folded
from switchcfg.plan.plan import Plan
from switchcfg.plan.state import Change

FEW: Final = 8  # values of one object that are shown; the rest is only counted


def lines(plan: Plan) -> Iterator[str]:
    """The lines that show the plan of one device."""
    yield f"{plan.device} ({plan.platform}):"
    if not plan.changes:
        yield "  no changes"
    yield from _changes(plan)
    read, every = plan.read
    if every:
        far = "" if read == every else "; the others are not near what the plan touches"
        yield f"  read {read} of {every} QoS lines{far}"
    if plan.seconds:
        yield f"  takes up to {minutes(plan.seconds)}: {_steps(plan)}"
    for text in folded(plan.disrupts, most=1):
        yield f"  disrupts: {text}"
    for text in plan.degraded:
        yield f"  degraded: {text}"


def _changes(plan: Plan) -> Iterator[str]:
    """The objects that change; those with the same changes share lines."""
    objects: dict[tuple[str, str], list[Change]] = {}
    for change in plan.changes:
        objects.setdefault((change.place.kind, change.place.name), []).append(change)
    alike: dict[tuple[str, ...], list[str]] = {}
    for (kind, name), changes in objects.items():
        values = (f"{each.sign} {_value(each)}" for each in changes)
        alike.setdefault((f"{_sign(changes)} {kind}", *values), []).append(name)
    for (head, *said), names in alike.items():
        yield f"  {head} {', '.join(_ranges(names))}".rstrip()
        yield from (f"      {each}" for each in said[:FEW])
        if len(said) > FEW:
            yield f"        ... and {len(said) - FEW} more"


def _ranges(names: Sequence[str]) -> list[str]:
    """The names as ranges: of their last numbers, or of the ports that they begin with."""
    rows: dict[str, list[str]] = {}
    for port, bar, row in (name.partition("|") for name in names):
        rows.setdefault(f"{bar}{row}", []).append(port)
    by_port = [f"{ports}{row}" for row, found in rows.items() for ports in compact(found)]
    return min(compact(names), by_port, key=len)


def summary(plans: Sequence[Plan]) -> str:
    """One line for all devices."""
    made, changed, removed = signs(plans)
    where = sum(1 for plan in plans if plan.changes)
    if not where:
        return f"No changes on {count(len(plans), 'device')}."
    return (
        f"Plan: {made} to add, {changed} to change, {removed} to remove "
        f"on {count(where, 'device')}."
    )


def signs(plans: Sequence[Plan]) -> tuple[int, int, int]:
    """The numbers of values that are added, changed and removed."""
    changes = [change for plan in plans for change in plan.changes]
    made, changed, removed = (sum(c.sign == sign for c in changes) for sign in "+~-")
    return made, changed, removed


def count(number: int, what: str) -> str:
    """A number and its noun: "1 change", "2 changes"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def minutes(seconds: int) -> str:
    """A time in whole minutes, rounded up: "1 minute", "2 minutes"."""
    return count(-(-seconds // 60), "minute")


def _steps(plan: Plan) -> str:
    """The steps that take long, by their time."""
    counted: dict[int, int] = {}
    for step in plan.steps:
        seconds = 60 * step.minutes or step.lasts
        counted[seconds] = counted.get(seconds, 0) + 1
    parts = (f"{count(n, 'step')} of {minutes(each)}" for each, n in counted.items() if each)
    return ", ".join(parts)


def _sign(changes: Sequence[Change]) -> str:
    signs = {change.sign for change in changes}
    return signs.pop() if len(signs) == 1 else "~"


def _value(change: Change) -> str:
    field = f"{change.place.field}: " if change.place.field else ""
    if change.before is None:
        return f"{field}{change.after}"
    if change.after is None:
        return f"{field}{change.before}"
    return f"{field}{change.before} -> {change.after}"
