"""Bounds and shares in closed form, for hosts on one switch and in racks."""

from collections.abc import Sequence
from fractions import Fraction

from dlcpd.planning.graph import Rates
from dlcpd.schedules.shares import one_switch_bound


def one_switch_rate(hosts: Sequence[Rates]) -> Fraction:
    """The best rate of all_reduce for at least two hosts on one switch, bit/s."""
    return one_switch_bound([each.send for each in hosts], [each.receive for each in hosts])


def one_switch_shares(hosts: Sequence[Rates]) -> tuple[Fraction, ...]:
    """Shares of the tensor that each host reduces for all others, for `one_switch_rate`.

    The owner of share s moves (1 + s (n - 2)) tensors in each direction, so a host with rate c may
    own (c / rate - 1) / (n - 2). These add up to 1 or more; larger shares give way first, so that
    the fastest hosts keep some room.
    """
    count = len(hosts)
    if count <= 2:
        return (Fraction(1, count),) * count
    rate = one_switch_rate(hosts)
    most = [(Fraction(min(each)) / rate - 1) / (count - 2) for each in hosts]
    if sum(most) <= 1:  # where directions differ, rates of hosts may not allow the bound
        return _in_proportion(most)
    level = _level(sorted(most))
    return tuple(min(each, level) for each in most)


def _in_proportion(most: Sequence[Fraction]) -> tuple[Fraction, ...]:
    total = sum(most)
    if not total:
        return (Fraction(1, len(most)),) * len(most)
    return tuple(each / total for each in most)


def _level(rising: Sequence[Fraction]) -> Fraction:
    """The level to which the largest values are cut so that all add up to 1; they exceed it."""
    below, number = Fraction(0), 0
    while (1 - below) > rising[number] * (len(rising) - number):
        below += rising[number]
        number += 1
    return (1 - below) / (len(rising) - number)


def racks_rate(racks: Sequence[tuple[Rates, Sequence[Rates]]]) -> Fraction:
    """A bound of all_reduce for racks, each an uplink and its hosts, bit/s.

    The least of two: racks as if they were hosts, and all hosts as if on one switch. Mixed groups
    of racks and hosts can be slower still; `bounds.all_reduce` looks at all.
    """
    hosts = [host for _, members in racks for host in members]
    alone = one_switch_rate(hosts)
    return min(alone, one_switch_rate([up for up, _ in racks])) if len(racks) > 1 else alone
