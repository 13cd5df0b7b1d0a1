"""The whole probe of a job's hosts: racks first, then the rates of hosts and of uplinks. Pure.

The caller carries out the rounds, in which the pairs send at the same time, and sends the rate of
each pair back. All hosts are numbers.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass

from dlcpd.planning.probe_racks import by_routers, placed, placing_rounds
from dlcpd.planning.probe_rates import ProbedRates, RoundRates, probed
from dlcpd.planning.probe_rounds import MOST_AGAIN, Pairs, again, rounds


@dataclass(frozen=True, slots=True)
class ProbedLinks:
    """Hosts of each rack, the rates found, and in words how the racks were found."""

    racks: tuple[tuple[int, ...], ...]
    rates: ProbedRates
    reason: str


def probe(
    first: Sequence[Collection[str]], between: Mapping[tuple[int, int], int] | None = None
) -> Generator[Pairs, RoundRates, ProbedLinks]:
    """Yields the pairs of a round, and gets their rates. `first`, `between`: as in `by_routers`."""
    found = by_routers(first, between)
    towards = dict[tuple[int, int], int]()
    for host, rack, pairs in placing_rounds(found):
        towards[host, rack] = (yield pairs).get(pairs[0], 0)
    found = placed(found, towards)
    met, seen = list[Pairs](), list[RoundRates]()
    for pairs in rounds(found.racks):
        met.append(pairs)
        seen.append((yield pairs))
    for _ in range(MOST_AGAIN):
        rates = probed(found.racks, seen)
        more = again(found.racks, dict(enumerate(rates.hosts)), met)
        if not more:
            break
        met.append(more)
        seen.append((yield more))
    return ProbedLinks(found.racks, probed(found.racks, seen), found.reason)
