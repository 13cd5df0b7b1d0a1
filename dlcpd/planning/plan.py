"""Chooses how to plan all_reduce for a network, and says what it did without."""

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Final

import numpy as np

from dlcpd.planning import bounds, classes, packing
from dlcpd.planning.bounds import Bound
from dlcpd.planning.graph import Graph
from dlcpd.planning.packing import PackedTree, Packing
from dlcpd.planning.pair_loads import TooLarge, pair_loads
from dlcpd.planning.racks import two_levels
from dlcpd.planning.solver import SolverMissing
from dlcpd.planning.symmetry import Symmetry, symmetry
from dlcpd.planning.trees import ROOT
from dlcpd.schedules.shares import one_switch_bound, one_switch_shares

ALL_ALONE: Final = 64  # hosts; more are planned by classes: in less time, with more trees


@dataclass(frozen=True, slots=True)
class TreePlan:
    """Trees, the bound that no schedule exceeds (None: one host), and a note for the user."""

    packing: Packing
    bound: Bound | None
    note: str


def all_reduce(graph: Graph) -> TreePlan:
    """A plan for all_reduce, never slower than an equal share for each host.

    Without scipy, or with too many different hosts, the plan is a closed form: of one switch, of
    racks, or an equal share for each host; the note says so. Raises: ValueError if some hosts are
    connected one way only; SolverMissing or TooLarge if hosts are connected through hosts besides.
    """
    if len(graph.hosts) == 1:
        alone = Packing(inf, (PackedTree(1.0, (ROOT,)),))
        return TreePlan(alone, None, "one host: nothing is sent")
    bound = bounds.all_reduce(graph)
    shares = _one_switch(graph)
    if shares is not None:
        return TreePlan(Packing(float(bound.rate), _stars(shares)), bound, "")
    rate, note = direct_rate(graph), ""
    try:
        search = packing if len(graph.hosts) <= ALL_ALONE else classes
        found: Packing | None = search.all_reduce(graph)
    except (SolverMissing, TooLarge) as exc:
        found, note = two_levels(graph), f"{exc}; until then "
        if found is None and not rate:
            raise
    if found is not None and found.rate > rate:
        return TreePlan(found, bound, note and f"{note}racks have trees of two levels")
    equal = Packing(rate, _stars(_equal(len(graph.hosts))))
    return TreePlan(equal, bound, note and f"{note}each host has an equal share")


def _equal(count: int) -> tuple[Fraction, ...]:
    return (Fraction(1, count),) * count


def direct_rate(graph: Graph) -> float:
    """The rate of all_reduce with an equal share for each host, bit/s. 0: some hosts have no route
    through switches alone. Raises: TooLarge."""
    found, count = symmetry(graph), len(graph.hosts)
    if found is not None:
        below = _hosts_below(graph, found)
        rates = []
        for link in graph.links:
            up = found.above[link.source] == link.target
            k = below[link.source if up else link.target]
            # k hosts send the others' shares to their owners, and the results of their own shares.
            if 0 < k < count:
                rates.append(link.rate * count / (2 * k * (count - k)))
        return min(rates)
    pairs = pair_loads(graph)
    if pairs.reaches.sum() < count * (count - 1):
        return 0.0
    loads = pairs.loads.sum(axis=(0, 1)) * 2 / count
    return float(np.min(pairs.capacity[loads > 0] / loads[loads > 0]))


def _hosts_below(graph: Graph, found: Symmetry) -> list[int]:
    """The number of hosts at or below each node."""
    below = [int(node < len(graph.hosts)) for node in range(graph.nodes)]
    for level in reversed(found.levels[1:]):
        for node in level:
            below[found.above[node]] += below[node]
    return below


def _one_switch(graph: Graph) -> tuple[Fraction, ...] | None:
    """Shares that reach the bound of hosts on one switch; None: another network, or no such shares,
    as can be where directions differ."""
    count = len(graph.hosts)
    if len(graph.switches) != 1 or {link[:2] for link in graph.links} != {
        way for host in range(count) for way in ((host, count), (count, host))
    }:
        return None
    rates = {link[:2]: link.rate for link in graph.links}
    send = [rates[host, count] for host in range(count)]
    receive = [rates[count, host] for host in range(count)]
    rate, shares = one_switch_bound(send, receive), one_switch_shares(send, receive)
    fits = all(
        rate * (1 + share * (count - 2)) <= min(both)
        for share, *both in zip(shares, send, receive, strict=True)
    )
    return shares if fits else None


def _stars(shares: tuple[Fraction, ...]) -> tuple[PackedTree, ...]:
    hosts = range(len(shares))
    return tuple(
        PackedTree(float(share), tuple(ROOT if other == hub else hub for other in hosts))
        for hub, share in enumerate(shares)
        if share
    )
