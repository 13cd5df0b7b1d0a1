"""Trees over hosts as trees over ranks: a head takes the place of its host, and is the parent of
the host's other ranks, whose data stay in memory. So bytes between hosts do not grow with ranks.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction

from dlcpd.schedules.builders.hierarchical import Hosts
from dlcpd.schedules.forest import ROOT, Forest, Tree
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import integer_shares, owned, rooted

Head = Callable[[int], int]  # by number of a host


def rotated(forest: Forest, hosts: Hosts) -> Forest:
    """For an all-reduce: each tree is divided into as many as a host has ranks at most, with
    another head each, so that all ranks of a host add."""
    lanes = max(map(len, hosts))
    if lanes == 1:
        return forest  # hosts are in the order of their ranks
    parts = [
        (over_ranks(tree, hosts, _lane(hosts, lane)), Fraction(tree.share, lanes))
        for tree in forest.trees
        for lane in range(lanes)
    ]
    return _forest(parts)


def owned_by_ranks(network: JobNetwork, hosts: Hosts) -> Forest:
    """For a reduce-scatter or all-gather: a tree to or from each rank."""
    over_hosts = {tree.root: tree for tree in owned(network, ALIGNMENT).trees}
    parts = {
        owner: over_ranks(over_hosts[number], hosts, _lane(hosts, lane))
        for number, ranks in enumerate(hosts)
        for lane, owner in enumerate(ranks)
    }
    return _forest((parents, Fraction(1)) for _, parents in sorted(parts.items()))


def from_root(network: JobNetwork, hosts: Hosts, root: int) -> Forest:
    """For a broadcast or reduce: trees that all have rank `root` as their root."""
    [home] = [number for number, ranks in enumerate(hosts) if root in ranks]
    parts = []
    for lane, tree in enumerate(rooted(network, home, ALIGNMENT).forest.trees):
        turned = _lane(hosts, lane)
        heads = {number: turned(number) for number in range(len(hosts))} | {home: root}
        parts.append((over_ranks(tree, hosts, heads.__getitem__), Fraction(tree.share)))
    return _forest(parts)


def over_ranks(tree: Tree, hosts: Hosts, head: Head) -> tuple[int, ...]:
    """The parent of each rank."""
    parents = [ROOT] * sum(map(len, hosts))
    for number, ranks in enumerate(hosts):
        above = tree.parents[number]
        for rank in ranks:
            parents[rank] = head(number)
        parents[head(number)] = ROOT if above == ROOT else head(above)
    return tuple(parents)


def _lane(hosts: Hosts, lane: int) -> Head:
    """Heads that stand at place `lane` of their hosts; of hosts with fewer ranks, in rotation."""
    return lambda number: hosts[number][lane % len(hosts[number])]


def _forest(parts: Iterable[tuple[tuple[int, ...], Fraction]]) -> Forest:
    """With chunks of any size."""
    made = list(parts)
    shares = integer_shares([part for _, part in made])
    trees = (
        Tree(share, parents) for (parents, _), share in zip(made, shares, strict=True) if share
    )
    return Forest(tuple(trees), ALIGNMENT)
