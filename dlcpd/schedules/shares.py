"""Closed forms: the best forests on one switch and on racks, with their bounds.

Rank r is host r of the network. Arithmetic is rational, so all engines get the same forest.
Source of the trees of one hop: Wang et al., Blink, MLSys 2020.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dlcpd.schedules.forest import ROOT, UNIT, Forest, Tree
from dlcpd.schedules.network import JobNetwork

PAIR: Final = 2  # hosts


@dataclass(frozen=True, slots=True)
class PlannedForest:
    """A forest, and the rate that no forest exceeds."""

    forest: Forest
    bound_bps: Fraction  # of the tensor, in bit/s; 0: nothing is sent


def one_switch(network: JobNetwork, chunk_bytes: int) -> PlannedForest:
    """Trees of one hop for an all-reduce on one switch; racks are ignored.

    Host i sends and receives (1 + s_i (n - 2)) bytes per byte of the tensor. The forest reaches the
    bound, but for the rounding of shares, if every host has equal rates in both directions.
    """
    world = len(network.hosts)
    bound = one_switch_bound(network.out_bps, network.in_bps)
    parts = one_switch_shares(network.out_bps, network.in_bps)
    trees = (
        Tree(share, tuple(ROOT if r == root else root for r in range(world)))
        for root, share in enumerate(integer_shares(parts))
        if share
    )
    return PlannedForest(Forest(tuple(trees), chunk_bytes), bound)


def two_levels(network: JobNetwork, chunk_bytes: int) -> PlannedForest:
    """Trees of two levels for an all-reduce: member -> head -> owner, one head in each rack.

    Racks own parts as hosts do on one switch, with uplinks in the place of NICs. Hosts of a rack
    share its part, by rate; heads of the other racks rotate. The bound is the lesser of that of the
    uplinks and that of the NICs; the forest may stay below it if both are near.
    """
    groups, rates = network.groups, network.rates
    if len(groups) == 1:
        return one_switch(network, chunk_bytes)
    up, down = zip(*((rack.up_bps, rack.down_bps) for rack in network.racks), strict=True)
    bound = min(one_switch_bound(up, down), one_switch_bound(network.out_bps, network.in_bps))
    of_racks = one_switch_shares(up, down)
    owned = {
        rank: part * Fraction(rates[rank], sum(rates[r] for r in group))
        for group, part in zip(groups, of_racks, strict=True)
        for rank in group
    }
    parts = [owned[rank] for rank in range(len(rates))]
    trees = []
    for root, share in enumerate(integer_shares(parts)):
        if share:
            trees.append(Tree(share, _two_level_parents(groups, root)))
    return PlannedForest(Forest(tuple(trees), chunk_bytes), bound)


def rooted(network: JobNetwork, root: int, chunk_bytes: int) -> PlannedForest:
    """Trees for a broadcast or reduce: the root sends an equal part to each other host, which
    passes it on to the rest. Racks are ignored.

    Every other host receives all bytes and sends (n - 2) / (n - 1) of them.
    """
    world = len(network.hosts)
    others = [rank for rank in range(world) if rank != root]
    if not others:
        return PlannedForest(Forest((Tree(UNIT, (ROOT,)),), chunk_bytes), Fraction(0))
    trees = []
    for via, share in zip(others, integer_shares([Fraction(1)] * len(others)), strict=True):
        parents = [via] * world
        parents[root], parents[via] = ROOT, root
        trees.append(Tree(share, tuple(parents)))
    out, into = network.out_bps, network.in_bps
    bound = Fraction(min(out[root], *(into[rank] for rank in others)))
    bound = min(bound, Fraction(sum(out), len(others)))
    return PlannedForest(Forest(tuple(trees), chunk_bytes), bound)


def owned(network: JobNetwork, chunk_bytes: int) -> Forest:
    """Trees for a reduce-scatter or all-gather, one to or from each rank: of two levels in racks,
    so that a part crosses each uplink once; of one hop without."""
    groups, world = network.groups, len(network.hosts)
    shares = integer_shares([Fraction(1)] * world)
    trees = (
        Tree(share, _two_level_parents(groups, root)) for root, share in enumerate(shares) if share
    )
    return Forest(tuple(trees), chunk_bytes)


def ring_order(network: JobNetwork) -> tuple[int, ...]:
    """Hosts in an order in which a ring enters each rack once; their own order, if it does.

    A ring crosses an uplink as often as it enters the rack, so no order is faster (Luo et al.,
    Cloud Collectives, 2021, without their search: racks are known here).
    """
    rack = {host: number for number, group in enumerate(network.groups) for host in group}
    ring = range(len(network.hosts))
    crossings = sum(rack[host] != rack[ring[host - 1]] for host in ring)
    if crossings <= len(network.groups):
        return tuple(ring)
    return tuple(host for group in sorted(network.groups) for host in group)


def integer_shares(parts: Sequence[Fraction]) -> tuple[int, ...]:
    """`parts` in 1/UNIT of their sum: largest remainders round up, of equal ones the first."""
    total = sum(parts)
    exact = [part * UNIT / total for part in parts]
    shares = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda at: (shares[at] - exact[at], at))
    for at in order[: UNIT - sum(shares)]:
        shares[at] += 1
    return tuple(shares)


def one_switch_bound(out: Sequence[int], into: Sequence[int]) -> Fraction:
    """The best rate of an all-reduce on one switch: every host sends and receives all bytes at
    least once, and all together 2 (n - 1) times. 0 for one host."""
    total = 2 * (len(out) - 1)
    if not total:
        return Fraction(0)
    return min(Fraction(min(*out, *into)), Fraction(sum(out), total), Fraction(sum(into), total))


def one_switch_shares(out: Sequence[int], into: Sequence[int]) -> tuple[Fraction, ...]:
    """The part of the tensor that each host reduces for all others, for `one_switch_bound`.

    The owner of share s moves 1 + s (n - 2) tensors each way, so a host may own (c / bound - 1) /
    (n - 2). These parts add up to 1 or more, and are scaled down; where directions differ they may
    add up to less, and the trees do not reach the bound.
    """
    count = len(out)
    if count <= PAIR:
        return (Fraction(1, count),) * count
    bound = one_switch_bound(out, into)
    most = [min(both) / bound - 1 for both in zip(out, into, strict=True)]
    total = sum(most)
    return tuple(part / total if total else Fraction(1, count) for part in most)


def _two_level_parents(groups: Sequence[Sequence[int]], root: int) -> tuple[int, ...]:
    parents = [ROOT] * sum(map(len, groups))
    home = next(group for group in groups if root in group)
    for group in groups:
        head = root if group is home else group[home.index(root) % len(group)]
        for rank in group:
            parents[rank] = head
        parents[head] = root
    parents[root] = ROOT
    return tuple(parents)
