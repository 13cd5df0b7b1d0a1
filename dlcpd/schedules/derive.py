"""Derives the forest of a collective from the network of a job, and what it gains.

Every engine derives the same: arithmetic is rational, and rates come from the network. The time of
a schedule is that of its busiest link, bytes / rate: all links work at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final

from dlcpd.schedules.builders.tree import binomial
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.forest import ROOT, UNIT, Forest
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import one_switch, owned, rooted, two_levels

FOREST: Final = "forest"  # name of the schedule
WORTH: Final = Fraction(21, 20)  # least gain of a forest: rates are known to two digits
LARGE: Final = 25 << 20  # bytes; a bucket of DDP
MOST_HOSTS: Final = 256  # 0.2 s of an engine's time; a tree per host
LEAST_CHUNK: Final = 64 << 10  # bytes; smaller ones cost a wake-up for a few datagrams
DEPTH: Final = 2  # of the trees here, in hops
BITS: Final = 8
NANOSECONDS: Final = 1_000_000_000

Carried = Iterable[tuple[tuple[int, ...], int]]  # parents of a tree, UNIT x the bytes it carries


@dataclass(frozen=True, slots=True)
class Way:
    """Directions in which the trees of a collective carry data."""

    up: bool  # from children to parents
    down: bool


WAYS: Final = {
    "all_reduce": Way(up=True, down=True),
    "reduce_scatter": Way(up=True, down=False),
    "all_gather": Way(up=False, down=True),
    "broadcast": Way(up=False, down=True),
    "reduce": Way(up=True, down=False),
}
ROOTED: Final = ("broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Derived:
    """A forest, and the seconds of its busiest link and of that of today's schedule."""

    forest: Forest
    network: JobNetwork
    seconds: Fraction
    without: Fraction

    @property
    def gain(self) -> Fraction:
        """How many times as fast the forest is."""
        return self.without / self.seconds


@lru_cache(maxsize=256)
def derive(
    network: JobNetwork,
    *,
    collective: str,
    sizes: tuple[int, ...],
    root: int,
    schedule: str,
    most_chunk: int,
) -> Derived | None:
    """The fastest forest for a collective; None: there is none for it, or nothing is sent.

    Rank r is host r of the network. `sizes`: bytes of each rank's part; one, where all ranks have
    as many. `schedule`: the one without a network, to compare with.
    """
    world = len(network.hosts)
    if collective not in WAYS or not 1 < world <= MOST_HOSTS or not sum(sizes):
        return None
    way = WAYS[collective]
    without = busiest(network, _today(collective, schedule, sizes, root, world), way)
    forests = _forests(collective, network, root)
    times = [busiest(network, _carried(forest, sizes), way) for forest in forests]
    seconds = min(times)
    forest = forests[times.index(seconds)]
    largest = max(carried for _, carried in _carried(forest, sizes)) // UNIT
    chunk = _chunk(largest, seconds, network.costs.transfer_ns, most_chunk)
    return Derived(Forest(forest.trees, chunk), network, seconds, without)


def decided(name: str, why: str, found: Derived) -> tuple[str, str]:
    """The forest instead of schedule `name`, which suits for the reason `why`, if it gains enough;
    and the reason either way."""
    latency_ns = found.network.costs.latency_ns
    more = Fraction(DEPTH * latency_ns, NANOSECONDS)  # seconds of its further network steps
    gain = f"gain {float(found.gain):.2f}"
    if found.without >= WORTH * found.seconds + more:
        return FOREST, f"{gain} over {name}: the busiest link of the network carries less"
    if found.network.uniform:
        return name, f"{gain}: all hosts are equal; {why}"
    return name, f"{gain}: too little; {why}"


def effect(network: JobNetwork) -> str:
    """The schedule of a large all-reduce with one rank per host, and the reason."""
    found = derive(
        network,
        collective="all_reduce",
        sizes=(LARGE,),
        root=0,
        schedule="direct",
        most_chunk=LONGEST,
    )
    if found is None:
        return f"none: {len(network.hosts)} hosts, where plans are for 2 to {MOST_HOSTS}"
    name, why = decided("direct", "each byte crosses the network twice", found)
    return f"{name}: {why}"


def _forests(collective: str, network: JobNetwork, root: int) -> list[Forest]:
    """Candidates, the simplest first, with chunks of any size."""
    if collective in ROOTED:
        return [rooted(network, root, LEAST_CHUNK).forest]
    if collective != "all_reduce":
        return [owned(network, LEAST_CHUNK)]
    return [one_switch(network, LEAST_CHUNK).forest, two_levels(network, LEAST_CHUNK).forest]


def _today(
    collective: str, schedule: str, sizes: tuple[int, ...], root: int, world: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """The trees of the schedule without a network: stars, or a binomial tree."""
    if schedule == "tree":
        parents = (binomial(rank, world, root).parent for rank in range(world))
        yield tuple(ROOT if parent is None else parent for parent in parents), sizes[0] * UNIT
        return
    for owner in (root,) if collective in ROOTED else range(world):
        star = tuple(ROOT if rank == owner else owner for rank in range(world))
        if len(sizes) > 1:
            yield star, sizes[owner] * UNIT
        else:
            yield star, sizes[0] * UNIT // (1 if collective in ROOTED else world)


def _carried(forest: Forest, sizes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    for tree in forest.trees:
        carried = sizes[0] * tree.share if len(sizes) == 1 else sizes[tree.root] * UNIT
        yield tree.parents, carried


def busiest(network: JobNetwork, trees: Carried, way: Way) -> Fraction:
    """Seconds of the link that needs most: a host's own, or the uplink of a rack."""
    rack = {host: number for number, group in enumerate(network.groups) for host in group}
    out, into = [0] * len(network.hosts), [0] * len(network.hosts)
    up, down = [0] * len(network.groups), [0] * len(network.groups)
    for parents, carried in trees:
        for child, parent in enumerate(parents):
            if parent == ROOT:
                continue
            for wanted, source, target in ((way.up, child, parent), (way.down, parent, child)):
                if wanted:
                    out[source] += carried
                    into[target] += carried
                    if rack[source] != rack[target]:
                        up[rack[source]] += carried
                        down[rack[target]] += carried
    loads = [*zip(out, network.out_bps, strict=True), *zip(into, network.in_bps, strict=True)]
    for number, one in enumerate(network.racks):
        loads += [(up[number], one.up_bps), (down[number], one.down_bps)]
    return max(Fraction(carried * BITS, rate * UNIT) for carried, rate in loads)


def _chunk(largest: int, seconds: Fraction, transfer_ns: int, most: int) -> int:
    """Bytes of the chunks of the tree that carries `largest` bytes. With K of them an operation of
    T seconds takes (K + DEPTH) / K x T, and the CPU time of K transfers: least with K = sqrt(DEPTH
    x T / that of one)."""
    count = isqrt(int(DEPTH * seconds * NANOSECONDS / max(transfer_ns, 1))) or 1
    wanted = -(-largest // count // ALIGNMENT) * ALIGNMENT
    return min(max(wanted, LEAST_CHUNK), most, LONGEST)
