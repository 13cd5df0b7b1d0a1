"""Probes of a path: its MTU, its treatment of DSCP and ECN, its losses and its routes.

Each takes a few round trips; `patience`: seconds to wait for an answer.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.core.paths.routes import SILENT
from dlcpd.core.wire.sizes import LEAST_MTU
from dlcpd.doctor.datagrams import MOST
from dlcpd.doctor.prober import Prober, Reply, Wish, ask, collect

AT_ONCE: Final = 16  # sizes of a round: four rounds find one of 7,720
DATAGRAMS: Final = 128  # per source port, for losses
SIZE: Final = 1200  # bytes of each; passes nearly everywhere
PAUSE: Final = 0.002  # seconds between datagrams of a port, unless all were answered before
MAX_HOPS: Final = 8  # routers; a data centre has five
HOP_PATIENCE: Final = 0.3  # seconds for ICMP of one hop of all ports
LOOK: Final = 0.005  # seconds between polls meanwhile


def sizes_between(low: int, high: int) -> list[int]:
    """At most AT_ONCE sizes above `low`, up to `high`, evenly spaced."""
    count = min(high - low, AT_ONCE)
    return [low + (high - low) * step // count for step in range(1, count + 1)]


def largest(passes: Callable[[Sequence[int]], set[int]], low: int, high: int) -> int:
    """The largest size of low..high that `passes`; 0: not even `low` does."""
    if low not in passes([low]):
        return 0
    while low < high:
        sizes = sizes_between(low, high)
        through = passes(sizes)
        first_lost = next((size for size in sizes if size not in through), high + 1)
        low = max((size for size in sizes if size < first_lost), default=low)
        high = first_lost - 1
    return low


@dataclass(frozen=True, slots=True)
class Mtu:
    """Bytes of the largest packet that passes, headers included; 0: not even 1,280."""

    there: int
    back: bool  # whether an answer of that size came back


def ask_mtu(prober: Prober, patience: float) -> Mtu:
    """Find the MTU by probes with DF set; needs no ICMP."""
    headers = 48 if ":" in prober.remote[0] else 28

    def passes(sizes: Sequence[int]) -> set[int]:
        found = ask([(prober, Wish(size=size - headers)) for size in sizes], patience)
        return {sizes[position] for position in found}

    there = largest(passes, LEAST_MTU, MOST + 28)
    if not there:
        return Mtu(0, back=False)
    payload = there - headers
    return Mtu(there, bool(ask([(prober, Wish(size=payload, reply_size=payload))], patience)))


@dataclass(frozen=True, slots=True)
class Mark:
    """A TOS byte: as it was sent, as it arrived there, and as the answer's arrived here."""

    sent: int
    there: int | None  # None: no answer came
    back: int | None


def ask_marks(prober: Prober, wanted: Sequence[int], patience: float) -> list[Mark]:
    """Exchange one probe and answer with each of these TOS bytes."""
    found = ask([(prober, Wish(tos=value)) for value in wanted], patience)
    return [
        Mark(value, found[n].answer.tos, found[n].tos) if n in found else Mark(value, None, None)
        for n, value in enumerate(wanted)
    ]


@dataclass(frozen=True, slots=True)
class PortLosses:
    """Losses of one source port."""

    sent: int
    lost: int  # there or back
    reordered: int  # arrived there after a later one
    rtt: float | None  # seconds; of the quickest answer


def ask_losses(probers: Sequence[Prober], patience: float) -> list[PortLosses]:
    """Send DATAGRAMS from each port, one at a time: losses are not due to bursts."""
    found: dict[int, Reply] = {}
    for turn in range(DATAGRAMS):
        for number, prober in enumerate(probers):
            prober.ask(turn * len(probers) + number, Wish(size=SIZE))
        collect(probers, found, (turn + 1) * len(probers), PAUSE)
    collect(probers, found, DATAGRAMS * len(probers), patience)
    for prober in probers:
        prober.forget()
    return [_losses(found, number, len(probers)) for number in range(len(probers))]


def _losses(found: dict[int, Reply], number: int, ports: int) -> PortLosses:
    replies = [
        found[position] for position in range(number, DATAGRAMS * ports, ports) if position in found
    ]
    return PortLosses(
        sent=DATAGRAMS,
        lost=DATAGRAMS - len(replies),
        reordered=overtaken([reply.answer.arrival for reply in replies]),
        rtt=min((reply.arrived_at - reply.sent_at for reply in replies), default=None),
    )


def overtaken(arrivals: Sequence[int]) -> int:
    """How many of `arrivals`, in the order of sending, are below an earlier one."""
    highest = count = 0
    for arrival in arrivals:
        count += arrival < highest
        highest = max(highest, arrival)
    return count


def ask_routes(probers: Sequence[Prober]) -> list[tuple[str, ...]]:
    """The routers that each port's datagrams cross, as of traceroute; SILENT for a router that does
    not answer; empty if the peer was not reached."""
    routes: list[list[str]] = [[] for _ in probers]
    arrived: set[int] = set()
    for hop in range(1, MAX_HOPS + 1):
        asking = [number for number in range(len(probers)) if number not in arrived]
        if not asking:
            break
        answers = _ask_hop([probers[number] for number in asking], hop)
        for number, answer in zip(asking, answers, strict=True):
            if answer is None:
                arrived.add(number)
            else:
                routes[number].append(answer)
    return [tuple(route) if n in arrived else () for n, route in enumerate(routes)]


def _ask_hop(probers: Sequence[Prober], hop: int) -> list[str | None]:
    """By prober: the router at that distance, SILENT if none answers, None if it was the peer."""
    found: dict[int, str | None] = {}
    for number, prober in enumerate(probers):
        prober.routers()  # drops those of earlier hops
        prober.ask_router(number, hop)
    until = time.monotonic() + HOP_PATIENCE
    over = False
    while len(found) < len(probers) and not over:
        time.sleep(LOOK)
        over = time.monotonic() > until  # then comes one last look
        for number, prober in enumerate(probers):
            found.update({position: None for position, _ in prober.replies()})
            for router in prober.routers():
                found.setdefault(number, router)
    for prober in probers:
        prober.forget()
    return [found.get(number, SILENT) for number in range(len(probers))]


def ways(routes: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """Distinct routes. A route with silent routers that fits another one does not count."""
    found: list[Sequence[str]] = []
    for route in sorted(routes, key=lambda route: list(route).count(SILENT)):
        if not any(_fits(route, other) for other in found):
            found.append(route)
    return found


def _fits(route: Sequence[str], other: Sequence[str]) -> bool:
    return len(route) == len(other) and all(
        a == b or SILENT in (a, b) for a, b in zip(route, other, strict=True)
    )
