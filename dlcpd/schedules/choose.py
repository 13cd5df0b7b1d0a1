"""Chooses the schedule of a collective, and gives the reason.

All ranks must choose the same, so the choice depends only on values equal on all ranks.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from dlcpd.contract.collectives import COLLECTIVES, WHOLE, Share
from dlcpd.numerics.codecs.codec import wire_size
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.schedules.catalog import CATALOG, Place, Task, derived
from dlcpd.schedules.coded import coded, coded_schedule, gathered
from dlcpd.schedules.derive import FOREST, decided
from dlcpd.schedules.divide import moved, part_of, selected
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.model import Program

SMALL: Final = 16 << 10  # bytes; under the smallest congestion window, so they leave at once
MAX_FAN_IN: Final = 64 << 10  # bytes sent to one rank at once by all others: a port buffers more
PAIR: Final = 2  # ranks
# Bytes up to which each of two ranks reduces all of a tensor, not a half: as many bytes cross the
# network in one step as in two. 256 KiB take 12 to 24 % less engine CPU so, 4 MiB 40 % more.
MOST_OF_PAIR: Final = 256 << 10
COMPUTED: Final = ("direct", "hierarchical")  # schedules in which the client computes
FEW: Final = 4  # ranks: among them a tree saves the root one copy of three at most


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule for one rank."""

    program: Program
    fingerprint: int  # u64; equal on all ranks that run the same schedule over the same sizes
    name: str
    why: str


def choose(task: Task, place: Place, schedule: str | None = None, share: Share = WHOLE) -> Choice:
    """The program of `place.rank` for `task`, or the part of it that is `share`. `schedule`
    overrides the choice by name.

    Raises: UnknownSchedule.
    """
    recipes = CATALOG.get(task.collective)
    if recipes is None:
        raise UnknownSchedule(f"no collective {task.collective!r}: one of {', '.join(CATALOG)}")
    by_range, start = COLLECTIVES[task.collective].by_range, 0
    if by_range:
        start, size = part_of(task.size, share)
        task = replace(task, size=size)
    name, why = _name(task, place, schedule, whole=by_range or share.of == 1)
    recipe = recipes.get(name)
    if task.adds and name != "direct":
        raise UnknownSchedule(f"its client adds its part only in schedule direct, not {name}")
    if recipe is None:
        names = ", ".join(recipes)
        raise UnknownSchedule(f"no schedule {name!r} for {task.collective}: one of {names}")
    program = recipe.build(place.rank, *recipe.arguments(task, place))
    if share.of > 1:
        program = moved(program, start) if by_range else selected(program, share)
    common = (recipe.common or recipe.arguments)(task, place)
    text = repr((recipe.pair or task.collective, name, common, share.number, share.of))
    if task.codec:
        codec = codec_of(task.codec)
        encode = gathered if task.computes else coded
        program = encode(program, lambda size: wire_size(codec, size // task.item))
        text += codec.name
    mark = blake2b(text.encode(), digest_size=8).digest()
    return Choice(program, int.from_bytes(mark, "little"), name, why)


def _name(task: Task, place: Place, wanted: str | None, *, whole: bool) -> tuple[str, str]:
    """Name of the schedule, and the reason. `whole`: engines divide the operation by range, or not
    at all; by transfers they cannot divide a forest, whose transfers have other numbers on each
    rank. Raises: UnknownSchedule."""
    if task.computes:
        return _computed(task, place, wanted)
    if task.codec:
        name, why = coded_schedule(task.collective, wanted or ""), "the codec's own"
    else:
        name, why = (wanted, "") if wanted else suits(task, place)
    if name == FOREST and not whole:
        raise UnknownSchedule(f"no forest for {task.collective} on several engines")
    if wanted:
        return wanted, "asked for by name"
    found = derived(task, place, name) if whole and name != "one_shot" else None
    return (name, why) if found is None else decided(name, why, found)


def _computed(task: Task, place: Place, wanted: str | None) -> tuple[str, str]:
    """As `_name`, where the client computes between reduction and gather."""
    if wanted and wanted not in COMPUTED:
        names = " or ".join(COMPUTED)
        raise UnknownSchedule(f"its client computes only in schedule {names}, not {wanted}")
    if wanted:
        return wanted, "asked for by name"
    why = "its client computes between reduction and gather"
    return ("hierarchical" if _shares_hosts(task, place) else "direct"), why


def _shares_hosts(task: Task, place: Place) -> bool:
    """Whether sums of each host save bytes between the hosts."""
    return len(place.hosts) > 1 and min(map(len, place.hosts)) > 1 and not task.lossy


def suits(task: Task, place: Place) -> tuple[str, str]:
    """Name of the schedule for a task, and the reason."""
    if task.collective == "all_reduce":
        return _all_reduce(task, place)
    if task.collective in ("broadcast", "reduce"):
        return _at_a_root(task, place)
    return "direct", "there is one schedule only"


def _all_reduce(task: Task, place: Place) -> tuple[str, str]:
    fan_in = task.size * (place.world - 1)
    if task.size <= SMALL and fan_in <= MAX_FAN_IN and not task.lossy:
        return "one_shot", f"{task.size} B are too few to be worth a second network step"
    if place.world == PAIR and task.size <= MOST_OF_PAIR and not task.lossy:
        return "one_shot", f"{task.size} B: for two ranks, a second network step saves no byte"
    if _shares_hosts(task, place):
        return "hierarchical", f"{place.world} ranks share {len(place.hosts)} hosts"
    return "direct", "each byte crosses the network twice, whatever the number of ranks"


def _at_a_root(task: Task, place: Place) -> tuple[str, str]:
    if place.world <= FEW:
        return "direct", f"{place.world} ranks: a tree would save the root little"
    if task.size * (place.world - 1) <= MAX_FAN_IN:
        return "direct", f"{task.size} B: one network step is faster than a tree's"
    return "tree", f"{place.world} ranks and {task.size} B: the root's link would be the limit"
