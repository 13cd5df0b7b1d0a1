"""Values of a device before switchcfg, from the plans that were applied to it. Pure."""

from collections.abc import Sequence

from switchcfg.plan.plan import Plan
from switchcfg.plan.state import Place, State


def before(done: Sequence[Plan], present: State) -> dict[Place, str | None]:
    """Place -> its value before the first of the applied plans (None: absent), for values that are
    still as the last of them left them.

    `done`: the oldest first. A value that was changed by other means between two plans counts from
    the later one.
    """
    first: dict[Place, str | None] = {}
    last: dict[Place, str | None] = {}
    for each in done:
        for change in each.changes:
            place = change.place
            if place not in last or last[place] != change.before:
                first[place] = change.before
            last[place] = change.after
    return {place: value for place, value in first.items() if present.get(place) == last[place]}
