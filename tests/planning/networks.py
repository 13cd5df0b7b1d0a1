"""Networks for tests: one switch, racks, the NVLink graph of a DGX-1V, random directed graphs."""

import random
from collections.abc import Sequence
from typing import Final

from dlcpd.planning.graph import DirectedLink, Graph, Rates, in_racks, merged, one_switch

# Pairs of GPUs of a DGX-1V with two links and with one
DOUBLE: Final = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
SINGLE: Final = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


def both(rate: int) -> Rates:
    return Rates(rate, rate)


def on_a_switch(rates: Sequence[int]) -> Graph:
    return one_switch({f"h{number}": both(rate) for number, rate in enumerate(rates)})


def racks(count: int, each: int, rate: int, uplink: int) -> Graph:
    members = [[f"h{rack}.{number}" for number in range(each)] for rack in range(count)]
    hosts = {host: both(rate) for rack in members for host in rack}
    return in_racks(hosts, {f"r{rack}": both(uplink) for rack in range(count)}, members)


def direct(hosts: int, links: Sequence[tuple[int, int, int]]) -> Graph:
    """Hosts that links connect without switches."""
    names = tuple(f"h{number}" for number in range(hosts))
    return Graph(names, (), merged(DirectedLink(*link) for link in links))


def dgx_1v() -> Graph:
    pairs = [(*pair, 2) for pair in DOUBLE] + [(*pair, 1) for pair in SINGLE]
    return direct(8, [way for a, b, rate in pairs for way in ((a, b, rate), (b, a, rate))])


def random_directed(seed: int) -> Graph:
    """3 to 8 hosts: a ring, so that each reaches all, and random links."""
    draw = random.Random(seed)
    hosts = draw.randint(3, 8)
    links = [(host, (host + 1) % hosts, draw.randint(1, 9)) for host in range(hosts)]
    density = draw.uniform(0.2, 0.9)
    links += [
        (a, b, draw.randint(1, 9))
        for a in range(hosts)
        for b in range(hosts)
        if a != b and draw.random() < density
    ]
    return direct(hosts, links)
