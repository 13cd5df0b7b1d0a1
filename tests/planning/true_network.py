"""A network whose rates a test knows, and what a round of a probe would measure on it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.planning.graph import Rates
from dlcpd.planning.probe_rounds import Pairs

NOISE: Final = 0.1  # each flow is measured up to this far off


@dataclass(frozen=True)
class TrueNetwork:
    """Rates in bit/s: of hosts, and of the uplink of each rack."""

    racks: tuple[tuple[int, ...], ...]
    hosts: tuple[Rates, ...]
    uplinks: tuple[Rates, ...]

    def rack(self, host: int) -> int:
        return next(n for n, members in enumerate(self.racks) if host in members)

    def measured(self, pairs: Pairs, draw: random.Random) -> dict[tuple[int, int], int]:
        """Bit/s of the pairs of a round: flows share links fairly (max-min), with noise."""
        links: dict[tuple[str, int, int], float] = {}
        ways = []
        for sender, receiver in pairs:
            way = [("host", sender, 0), ("host", receiver, 1)]
            if (a := self.rack(sender)) != (b := self.rack(receiver)):
                way += [("rack", a, 0), ("rack", b, 1)]
            ways.append(way)
            for link in way:
                kind, number, direction = link
                links[link] = (self.hosts if kind == "host" else self.uplinks)[number][direction]
        rates = dict[int, float]()
        while len(rates) < len(ways):
            open_ = [flow for flow in range(len(ways)) if flow not in rates]
            shares = {
                link: left / n
                for link, left in links.items()
                if (n := sum(link in ways[flow] for flow in open_))
            }
            tight = min(shares, key=lambda link: shares[link])
            for flow in open_:
                if tight in ways[flow]:
                    rates[flow] = shares[tight]
            for link in links:
                links[link] -= sum(
                    shares[tight] for flow in open_ if tight in ways[flow] and link in ways[flow]
                )
        return {
            pair: round(rates[flow] * draw.uniform(1 - NOISE, 1 + NOISE))
            for flow, pair in enumerate(pairs)
        }


def random_network(seed: int) -> TrueNetwork:
    """2 to 4 racks of 3 to 5 hosts, with one or two slow hosts that may sit side by side, and
    uplinks of a quarter to all of what their hosts send together."""
    draw = random.Random(seed)
    sizes = [draw.randint(3, 5) for _ in range(draw.randint(2, 4))]
    total = sum(sizes)
    order = draw.sample(range(total), total)
    racks, hosts = [], [Rates(1, 1)] * total
    for size in sizes:
        members = tuple(sorted(order.pop() for _ in range(size)))
        racks.append(members)
        fast = draw.choice((10**8, 4 * 10**8, 25 * 10**9))
        for host in members:
            hosts[host] = Rates(fast, fast)
        for host in draw.sample(members, draw.randint(0, size - 2)):
            hosts[host] = Rates(fast // draw.randint(2, 8), fast // draw.randint(2, 8))
    uplinks = tuple(_uplink([hosts[h] for h in members], draw) for members in racks)
    return TrueNetwork(tuple(racks), tuple(hosts), uplinks)


def _uplink(hosts: Sequence[Rates], draw: random.Random) -> Rates:
    part = draw.uniform(0.25, 1)
    return Rates(*(round(part * sum(each)) for each in zip(*hosts, strict=True)))
