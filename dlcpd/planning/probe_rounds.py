"""Rounds of a probe: who sends to whom at the same time, so that bytes say the rates of links.

In each round every host sends to at most one host and receives from at most one. First come two
shifts inside all racks at once: they show what hosts send and receive. Then one pair of racks at a
time, both ways: it shows their uplinks. A round that follows from the rates found so far gives
hosts that only had slow partners a fast one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dlcpd.planning.graph import Rates

Pairs = tuple[tuple[int, int], ...]  # (sender, receiver) of each flow of a round, by host number
Racks = Sequence[Sequence[int]]  # the hosts of each rack; every host is in one

SECONDS: Final = 0.2  # of a round: slow start takes a tenth of it, and 38 rounds take 8 s
SHIFTS: Final = (1, 2)  # two partners: one slow partner hides no rate
MOST_AGAIN: Final = 6  # rounds for hosts that had slow partners only: 1.2 s
FASTER: Final = 1.05  # a partner that is faster by less changes the result by less
CLEARLY: Final = 1.25  # times as fast; less cannot be told from noise


def rounds(racks: Racks) -> Iterator[Pairs]:
    """The rounds that need no rates: at most 2 for hosts and 2 for each rack."""
    for shift in SHIFTS:
        inside = [_shifted(members, shift) for members in racks if len(members) > shift]
        if inside:
            yield tuple(pair for pairs in inside for pair in pairs)
    for first, second in _rack_pairs(len(racks)):
        yield _between(racks[first], racks[second])


def again(racks: Racks, found: Mapping[int, Rates], met: Sequence[Pairs]) -> Pairs:
    """Pairs inside racks for hosts whose rates may be those of their partners; empty: none.

    `found` are the rates by host that rounds `met` say. A host's direction is settled by a partner
    that was seen to be faster. Of pairs that have not met and are not settled, those with the
    fastest host come first. Racks whose hosts look equal need none: a host there can be faster only
    if all of its partners were slow.
    """
    rack_of = {host: number for number, members in enumerate(racks) for host in members}
    # Between racks an uplink may be the limit: such pairs settle nothing.
    done = {(a, b) for pairs in met for a, b in pairs if rack_of[a] == rack_of[b]}
    senders = {a for a, b in done if found[b].receive > found[a].send * CLEARLY}
    receivers = {b for a, b in done if found[a].send > found[b].receive * CLEARLY}

    def helps(a: int, b: int) -> bool:
        if a == b or (a, b) in done or (a in senders and b in receivers):
            return False
        if a in senders:
            return found[a].send > found[b].receive * FASTER
        return b not in receivers or found[b].receive > found[a].send * FASTER

    chosen: list[tuple[int, int]] = []
    for members in racks:
        rates = [rate for host in members for rate in found[host]]
        if max(rates) <= min(rates) * CLEARLY:
            continue
        pairs = [(a, b) for a in members for b in members if helps(a, b)]
        pairs.sort(key=lambda p: sorted((-found[p[0]].send, -found[p[1]].receive)))
        while pairs:
            a, b = pairs[0]
            chosen.append((a, b))
            pairs = [pair for pair in pairs if pair[0] != a and pair[1] != b]
    return tuple(chosen)


def _shifted(members: Sequence[int], shift: int) -> Pairs:
    count = len(members)
    return tuple((host, members[(at + shift) % count]) for at, host in enumerate(members))


def _rack_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Each rack with the next and the one after it: all pairs of up to five racks."""
    seen = set[frozenset[int]]()
    for shift in SHIFTS:
        for first in range(count):
            second = (first + shift) % count
            pair = frozenset((first, second))
            if len(pair) > 1 and pair not in seen:
                seen.add(pair)
                yield first, second


def _between(first: Sequence[int], second: Sequence[int]) -> Pairs:
    """Both ways between two racks, with as many hosts as the smaller one has."""
    pairs = zip(first, second, strict=False)  # the larger rack has hosts without a partner
    return tuple(way for a, b in pairs for way in ((a, b), (b, a)))
