"""The network of a job as a value: hosts, switches, and links with a rate per direction."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple


class DirectedLink(NamedTuple):
    """One direction of a connection between two nodes, by their numbers. `rate`: bit/s."""

    source: int
    target: int
    rate: int


class Rates(NamedTuple):
    """The most that a host or a rack sends and receives, bit/s."""

    send: int
    receive: int


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes are numbered: hosts in the order of `hosts`, then switches.

    At most one link leads from a node to another, with a rate above 0. Hosts reduce and forward;
    switches forward only.
    """

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[DirectedLink, ...]

    @property
    def nodes(self) -> int:
        return len(self.hosts) + len(self.switches)

    def name(self, node: int) -> str:
        return (*self.hosts, *self.switches)[node]

    def leaving(self, side: Iterable[int]) -> int:
        """The sum of the rates of links from nodes of `side` to others, bit/s."""
        inside = frozenset(side)
        return sum(
            link.rate for link in self.links if link.source in inside and link.target not in inside
        )

    def members(self, side: Iterable[int]) -> frozenset[int]:
        """The hosts among the nodes of `side`."""
        return frozenset(node for node in side if node < len(self.hosts))

    def backwards(self) -> "Graph":
        """The same nodes with every link turned round."""
        turned = (DirectedLink(link.target, link.source, link.rate) for link in self.links)
        return Graph(self.hosts, self.switches, tuple(sorted(turned)))

    def reached(self, start: int, *, backwards: bool = False) -> frozenset[int]:
        """Nodes to which links lead from `start`, or from which they lead there."""
        onwards = neighbours(self, backwards=backwards)
        found, waiting = {start}, [start]
        while waiting:
            for node in onwards[waiting.pop()]:
                if node not in found:
                    found.add(node)
                    waiting.append(node)
        return frozenset(found)


def neighbours(graph: Graph, *, backwards: bool = False) -> list[list[int]]:
    """The targets of each node's links, or their sources, in rising order."""
    found: list[list[int]] = [[] for _ in range(graph.nodes)]
    for link in sorted(graph.links):
        here, there = (link.target, link.source) if backwards else (link.source, link.target)
        found[here].append(there)
    return found


def merged(links: Iterable[DirectedLink]) -> tuple[DirectedLink, ...]:
    """Parallel links as one with the sum of their rates."""
    rates: dict[tuple[int, int], int] = {}
    for source, target, rate in links:
        rates[source, target] = rates.get((source, target), 0) + rate
    return tuple(
        DirectedLink(source, target, rate) for (source, target), rate in sorted(rates.items())
    )


def one_switch(hosts: Mapping[str, Rates]) -> Graph:
    """All hosts on one switch that is never the limit."""
    return in_racks(hosts, {}, ())


def in_racks(
    hosts: Mapping[str, Rates], uplinks: Mapping[str, Rates], racks: Sequence[Sequence[str]]
) -> Graph:
    """Hosts in racks; `racks` has the hosts of each, in the order of `uplinks`.

    A core that is never the limit connects the racks, and the hosts that are in none.
    """
    names = tuple(hosts)
    core = len(names)
    above = {host: core + 1 + number for number, members in enumerate(racks) for host in members}
    links = [
        link
        for number, host in enumerate(names)
        for link in _both(number, above.get(host, core), hosts[host])
    ]
    for number, rates in enumerate(uplinks.values()):
        links += _both(core + 1 + number, core, rates)
    switches = _core({*names, *uplinks}), *uplinks
    return Graph(names, switches, merged(links))


def _core(taken: Collection[str]) -> str:
    """A name for the core that no host or rack has."""
    names = chain(["core"], map("core-{}".format, count(1)))
    return next(name for name in names if name not in taken)


def _both(node: int, above: int, rates: Rates) -> Iterator[DirectedLink]:
    yield DirectedLink(node, above, rates.send)
    yield DirectedLink(above, node, rates.receive)
