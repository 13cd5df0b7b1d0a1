"""Assigns classes to the queues of a port, in bytes, within the abilities of a platform. Pure.

A platform with one curve per queue still distinguishes two drop precedences. Where it marks ECT
packets, it drops Not-ECT packets at the same thresholds (RFC 3168 section 7); the last drop
precedence is sent as Not-ECT. Without ECN, a class takes a second queue while queues are free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from switchcfg.errors import CannotExpress
from switchcfg.intent.classes import TrafficClass
from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.intent.lossless import Lossless

MIN_QUEUE = 1 << 13  # bytes; five full packets: a smaller queue would drop without congestion


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of a platform."""

    curves: int  # drop precedences by DSCP inside one queue; 1 = one curve for all
    own_mark: bool  # ECN thresholds are separate from drop thresholds
    spray: tuple[str, ...]  # supported values of `spray` of an intent
    bare_curve: bool = False  # Not-ECT packets have a drop curve besides the ECN thresholds
    trim: bool = False  # a packet without room is cut to its first bytes, not dropped
    lossless: int = 0  # most classes of [[lossless]]
    no_lossless: str = "switchcfg does not support them there"  # why it has none


@dataclass(frozen=True, slots=True)
class Band:
    """How a queue treats one drop precedence."""

    rank: int
    dscps: tuple[int, ...]
    begin: int  # bytes of queue below which nothing is dropped
    certain: int  # bytes of queue above which everything is dropped; the limit = tail drop


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a port."""

    index: int  # QUEUES - 1 is served first
    name: str  # of its class, or of its classes joined by "+"
    limit: int  # bytes
    share: float  # of the port's buffer
    bands: tuple[Band, ...]  # by drop precedence, the protected first
    mark: tuple[int, int] | None  # bytes (begin, certain) of ECN; None: it does not mark

    @property
    def dscps(self) -> tuple[int, ...]:
        """The DSCPs of all bands."""
        return tuple(dscp for band in self.bands for dscp in band.dscps)


@dataclass(frozen=True, slots=True)
class Layout:
    """The queues of one port group, in service order, and `degraded`: the deviations.

    `queues` are strict. A lossless class has the queue with the number of its priority. Lossless
    queues share by weight the rate that the strict ones leave.
    """

    queues: tuple[Queue, ...]
    rest: int  # index of the queue that takes every other DSCP
    degraded: tuple[str, ...]
    lossless: tuple[Lossless, ...] = ()

    def rank_of(self) -> dict[int, int]:
        """DSCP of a class -> its drop precedence, as far as the platform distinguishes them."""
        bands = [band for queue in self.queues for band in queue.bands]
        return {dscp: band.rank for band in bands for dscp in band.dscps}

    def queue_of(self, intent: Intent) -> dict[int, int]:
        """Every DSCP -> index of its queue."""
        out = dict.fromkeys(range(64), self.rest)
        out.update(intent.keep.dscp)
        for each in self.lossless:
            out.update(dict.fromkeys(each.dscp, each.priority))
        for queue in self.queues:
            out.update(dict.fromkeys(queue.dscps, queue.index))
        return out


@dataclass(frozen=True, slots=True)
class _Part:
    """The content of one queue: drop precedences of a class, or of classes that share it."""

    name: str
    share: float
    ranks: tuple[tuple[int, int, bool], ...]  # (drop precedence, DSCP, is ECT)
    shallow: bool = False  # last drop precedence alone; the limit is the end of its curve


def lay_out(intent: Intent, group: PortGroup, able: Abilities) -> Layout:
    """Assign the classes to queues and compute the fractions in bytes.

    Raises: CannotExpress if no queue is free.
    """
    taken = {*intent.keep.queues, *(each.priority for each in intent.lossless)}
    free = [each for each in reversed(range(QUEUES)) if each not in taken]
    if not free:
        raise CannotExpress(
            "[keep] and [[lossless]] use every queue: no queue is left for the classes"
        )
    parts, degraded = _parts(intent, able, len(free))
    queues = tuple(
        _queue(intent, group, able, index, part) for index, part in zip(free, parts, strict=False)
    )
    rest = next(each.index for each in queues if intent.queueing.rest in each.name.split("+"))
    if intent.spray not in (*able.spray, "keep"):
        degraded.append(f'spray = "{intent.spray}" is not supported: ECMP is not changed')
    degraded += _starved(intent)
    first, *others = queues
    return Layout((_with_cnps(intent, first), *others), rest, tuple(degraded), intent.lossless)


def _with_cnps(intent: Intent, first: Queue) -> Queue:
    """The first queue, with the CNPs of lossless classes, which are of no use when late."""
    sent = {dscp for each in intent.classes for dscp in each.dscp}
    cnps = {each.cnp for each in intent.lossless if each.cnp is not None}
    protected, *others = first.bands
    more = replace(protected, dscps=(*protected.dscps, *sorted(cnps - sent)))
    return replace(first, bands=(more, *others))


def _starved(intent: Intent) -> Iterator[str]:
    for each in intent.lossless:
        yield (
            f"{each.name}: strict queues are served first: its share of {each.share}% is a share "
            "of the rate that they leave"
        )


def _parts(intent: Intent, able: Abilities, free: int) -> tuple[list[_Part], list[str]]:
    classes, degraded = list(intent.classes), list[str]()
    parts = [_part([each]) for each in classes]
    if len(classes) > free:
        together = classes[free - 1 :]
        parts = [*parts[: free - 1], _part(together)]
        names = ", ".join(each.name for each in together)
        degraded.append(
            f"{len(classes)} classes and {free} free queues: {names} share the last queue"
        )
    by_ecn = intent.queueing.mark is not None and not able.own_mark
    out: list[_Part] = []
    spare = free - len(parts)
    for part in parts:
        ranks = sorted({rank for rank, _, _ in part.ranks})
        if len(ranks) <= able.curves:
            out.append(part)
        elif by_ecn and _ecn_tells(part):
            out.append(part)
            degraded += _merged(part.name, ranks[:-1], "one curve per queue")
            if not able.bare_curve:
                degraded += _moved(part.name, intent, ranks[-1])
        elif spare and len(ranks) > 1:
            spare -= 1
            out += _split(part, ranks[-1])
            degraded += _merged(part.name, ranks[:-1], "one curve per queue")
        else:
            out.append(part)
            degraded += _merged(part.name, ranks, "one curve per queue, and no free queue")
    return out, degraded


def _part(classes: Sequence[TrafficClass]) -> _Part:
    return _Part(
        "+".join(each.name for each in classes),
        sum(each.share for each in classes),
        tuple(
            (rank, dscp, ect)
            for each in classes
            for rank, (dscp, ect) in enumerate(zip(each.dscp, each.ect, strict=True))
        ),
    )


def _ecn_tells(part: _Part) -> bool:
    """Whether the last drop precedence, and no other, is sent as Not-ECT."""
    last = max(rank for rank, _, _ in part.ranks)
    return last > 0 and all(ect == (rank < last) for rank, _, ect in part.ranks)


def _split(part: _Part, last: int) -> Iterator[_Part]:
    """Two parts: the last drop precedence gets a shallow queue below that of the others."""
    above = tuple(each for each in part.ranks if each[0] < last)
    below = tuple(each for each in part.ranks if each[0] == last)
    yield _Part(part.name, part.share, above)
    yield _Part(f"{part.name}-low", part.share, below, shallow=True)


def _moved(name: str, intent: Intent, rank: int) -> list[str]:
    """The deviation where one curve marks and drops: ECN's thresholds win, for more packets."""
    mark, drop = intent.queueing.mark, intent.queueing.curves[rank]
    if mark is None or mark == drop:
        return []
    wants, has = ("{:g} to {:g}".format(*ramp) for ramp in (drop, mark))
    return [
        f"{name}: drop precedence {rank} is dropped at the thresholds of ECN, {has}, not at {wants}"
    ]


def _merged(name: str, ranks: Sequence[int], why: str) -> list[str]:
    if len(ranks) < 2:
        return []
    shown = " and ".join(str(rank) for rank in ranks)
    return [f"{name}: drop precedences {shown} are treated alike: {why}"]


def _queue(intent: Intent, group: PortGroup, able: Abilities, index: int, part: _Part) -> Queue:
    limit = max(int(group.buffer * part.share), MIN_QUEUE)
    if part.shallow:
        last = intent.queueing.curves[part.ranks[0][0]]
        limit = max(int(limit * last[1]), MIN_QUEUE)
    bands = _bands(intent, able, part, limit)
    mark = intent.queueing.mark
    marks = mark is not None and any(ect for _, _, ect in part.ranks)
    in_bytes = (int(limit * mark[0]), int(limit * mark[1])) if mark is not None and marks else None
    return Queue(index, part.name, limit, part.share, bands, in_bytes)


def _bands(intent: Intent, able: Abilities, part: _Part, limit: int) -> tuple[Band, ...]:
    ranks = sorted({rank for rank, _, _ in part.ranks})
    if able.bare_curve and intent.queueing.mark and len(ranks) > 1 and _ecn_tells(part):
        above = tuple(dscp for rank, dscp, _ in part.ranks if rank < ranks[-1])
        return (Band(0, above, limit, limit), *_curves(intent, part, limit, ranks[-1:]))
    if part.shallow or len(ranks) > able.curves:
        return (Band(0, tuple(dscp for _, dscp, _ in part.ranks), limit, limit),)
    return _curves(intent, part, limit, ranks)


def _curves(intent: Intent, part: _Part, limit: int, ranks: Sequence[int]) -> tuple[Band, ...]:
    return tuple(
        Band(
            rank,
            tuple(dscp for each, dscp, _ in part.ranks if each == rank),
            int(limit * intent.queueing.curves[rank][0]),
            int(limit * intent.queueing.curves[rank][1]),
        )
        for rank in ranks
    )
