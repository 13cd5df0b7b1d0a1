"""Upper bounds of the rate of a collective, each with the cuts that prove it.

A rate is that at which bytes of the whole tensor (of the gathered result for `all_gather`) are
finished on all hosts, bit/s. Hosts reduce and copy; switches do not.

broadcast: all bytes leave each set of nodes that has the root and not all hosts, so the rate is at
most the least cut between the root and a host. Edmonds: trees reach it where there are no switches.

all_gather: a set with k of n hosts that lacks another host sends k/n of the result (ForestColl).

all_reduce: all bytes, reduced or not, leave each set that lacks a host. Also, for hosts in k
disjoint groups, k - 1 transfers between groups make each byte's sum known somewhere and k - 1 more
make it known to all, so the groups send 2 (k - 1) times the tensor. For links without switches and
equal both ways this is the theorem of Tutte and Nash-Williams: trees used both ways reach it.

Each search follows Newton: it begins above the least bound, finds a cut that a rate violates by
maximum flows, and goes on from that cut's own rate. All numbers are exact, and the last cut is the
proof; a binary search would have to guess the fraction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dlcpd.planning.graph import Graph
from dlcpd.planning.max_flow import UNLIMITED, FlowNetwork


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule is faster than `rate`, bit/s: links that leave `sides` must together carry
    `times` the tensor. A side is a set of nodes."""

    rate: Fraction
    sides: tuple[frozenset[int], ...]
    times: Fraction

    def proved(self, graph: Graph) -> bool:
        """Whether the rates of the links give this bound."""
        return sum(map(graph.leaving, self.sides)) == self.rate * self.times


def _cut(graph: Graph, side: frozenset[int], times: Fraction = Fraction(1)) -> Bound:
    return Bound(graph.leaving(side) / times, (side,), times)


def broadcast(graph: Graph, root: int) -> Bound:
    """The least cut between `root` and another host. At least two hosts."""
    network = FlowNetwork(graph.nodes, graph.links)
    return min(_cuts(graph, network, ((root, to) for to in _others(graph, root))), key=_rate)


def all_gather(graph: Graph) -> Bound:
    """The bound of all_gather, and of reduce_scatter over the same links in reverse."""
    hosts = len(graph.hosts)
    best = min((_cut(graph, frozenset((h,)), Fraction(1, hosts)) for h in range(hosts)), key=_rate)
    while True:
        # Each host feeds in rate / hosts; all of it must reach every host.
        p, q = best.rate.numerator, best.rate.denominator * hosts
        feed = graph.nodes
        network = FlowNetwork(
            graph.nodes + 1, ((link.source, link.target, link.rate * q) for link in graph.links)
        )
        for host in range(hosts):
            network.add(feed, host, p)
        found = [best]
        for host in range(hosts):
            if network.flow(feed, host) < p * hosts:
                side = network.side(feed) - {feed}
                share = Fraction(len(graph.members(side)), hosts)
                found.append(_cut(graph, side, share))
        least = min(found, key=_rate)
        if least.rate == best.rate:
            return best
        best = least


def all_reduce(graph: Graph) -> Bound:
    """The bound of all_reduce with reduction and distribution at the same time."""
    network = FlowNetwork(graph.nodes, graph.links)
    pairs = ((pair, pair[::-1]) for pair in ((0, other) for other in _others(graph, 0)))
    best = min(_cuts(graph, network, (way for both in pairs for way in both)), key=_rate)
    singles = [frozenset((host,)) for host in range(len(graph.hosts))]
    best = _least_partition(graph, min(best, _partition(graph, singles), key=_rate))
    turned = graph.backwards()
    if turned.links == graph.links:
        return best
    # Groups receive as much as they send: out of the others' side of each.
    start = min(best, _partition(turned, singles), key=_rate)
    least = _least_partition(turned, start)
    if least.rate == best.rate:
        return best
    every = frozenset(range(graph.nodes))
    return Bound(least.rate, tuple(every - side for side in least.sides), least.times)


def _least_partition(graph: Graph, best: Bound) -> Bound:
    """`best`, or the bound of the groups that prove less."""
    while (groups := _violated(graph, best.rate)) is not None:
        best = _partition(graph, groups)
    return best


def _partition(graph: Graph, groups: list[frozenset[int]]) -> Bound:
    times = Fraction(2 * (len(groups) - 1))
    return Bound(sum(map(graph.leaving, groups)) / times, tuple(groups), times)


def _violated(graph: Graph, rate: Fraction) -> list[frozenset[int]] | None:
    """Groups of hosts (with switches) that cannot send 2 (k - 1) times the tensor at `rate`.

    The least sum over all partitions of f(group) = leaving(group) - 2 rate is found host by host
    (Dilworth truncation): a new host takes the least f of a group with it, less what the hosts
    before it in that group have taken. Groups that overlap become one.
    """
    scale, twice = rate.denominator, 2 * rate.numerator
    taken: list[int] = []
    groups: list[frozenset[int]] = []
    for host in range(len(graph.hosts)):
        value, group = _least_group(graph, host, taken, scale)
        taken.append(value - twice)
        for other in [each for each in groups if graph.members(each & group)]:
            groups.remove(other)
            group |= other
        groups.append(group)
    if sum(taken) >= -twice:
        return None
    return [_tightest(graph, group) for group in groups]


def _least_group(
    graph: Graph, host: int, taken: list[int], scale: int
) -> tuple[int, frozenset[int]]:
    """The group of `host` and earlier hosts whose links out, less what those took, are least."""
    sink = graph.nodes
    network = FlowNetwork(
        graph.nodes + 1, ((link.source, link.target, link.rate * scale) for link in graph.links)
    )
    constant = 0
    for other, value in enumerate(taken):
        if value > 0:
            network.add(host, other, value)
            constant += value
        elif value < 0:
            network.add(other, sink, -value)
    for later in range(host + 1, len(graph.hosts)):
        network.add(later, sink, UNLIMITED)
    value = network.flow(host, sink) - constant
    return value, network.side(host)


def _tightest(graph: Graph, group: frozenset[int]) -> frozenset[int]:
    """`group` with those switches that make the links out of it least."""
    source, sink = graph.nodes, graph.nodes + 1
    network = FlowNetwork(graph.nodes + 2, graph.links)
    for host in range(len(graph.hosts)):
        ends = (source, host) if host in group else (host, sink)
        network.add(*ends, UNLIMITED)
    network.flow(source, sink)
    return network.side(source) - {source}


def _others(graph: Graph, host: int) -> Iterator[int]:
    return (other for other in range(len(graph.hosts)) if other != host)


def _cuts(graph: Graph, network: FlowNetwork, pairs: Iterator[tuple[int, int]]) -> Iterator[Bound]:
    for source, sink in pairs:
        network.flow(source, sink)
        yield _cut(graph, network.side(source))


def _rate(bound: Bound) -> Fraction:
    return bound.rate
