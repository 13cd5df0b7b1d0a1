"""Derives the forest of a collective from the network of a job, and what it gains.

Every engine derives the same: arithmetic is rational, and rates come from the network. The time of
a schedule is that of its busiest link, bytes / rate: all links work at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final

from dlcpd.schedules.builders.hierarchical import Hosts
from dlcpd.schedules.builders.tree import binomial
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.forest import LEAST_AHEAD, ROOT, UNIT, Forest, Tree
from dlcpd.schedules.lanes import from_root, owned_by_ranks, rotated
from dlcpd.schedules.layout import ALIGNMENT, SEGMENT
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import integer_shares, one_switch, two_levels

FOREST: Final = "forest"  # name of the schedule
WORTH: Final = Fraction(21, 20)  # least gain of a forest: rates are known to two digits
LARGE: Final = 25 << 20  # bytes; a bucket of DDP
MOST_RANKS: Final = 256  # up to 0.5 s of an engine's time; a tree per rank
LEAST_CHUNK: Final = 4 * SEGMENT
CONTROL: Final = 128  # bytes on a link for a transfer: its part of COMPLETE, CREDIT and END
LEAST_CODED: Final = 256 << 10  # bytes, before a codec encodes them
# Of an operation, unless they are LONGEST: a program is kept in memory. On 64 hosts 3 MB of steps.
MOST_CHUNKS: Final = 2048
DEPTH: Final = 2  # of the trees here, in hops
BITS: Final = 8
NANOSECONDS: Final = 1_000_000_000
MICROSECONDS: Final = 1000  # nanoseconds of one

Carried = Iterable[tuple[tuple[int, ...], int]]  # parents of a tree, UNIT x the bytes it carries


@dataclass(frozen=True, slots=True)
class Directions:
    """Directions in which the trees of a collective carry data."""

    up: bool  # from children to parents
    down: bool


WAYS: Final = {
    "all_reduce": Directions(up=True, down=True),
    "reduce_scatter": Directions(up=True, down=False),
    "all_gather": Directions(up=False, down=True),
    "broadcast": Directions(up=False, down=True),
    "reduce": Directions(up=True, down=False),
}
ROOTED: Final = ("broadcast", "reduce")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective and its bytes: of each rank's part, or one size where all ranks have as many."""

    collective: str
    sizes: tuple[int, ...]
    root: int = 0
    one_hop: bool = False  # for values that a codec encodes: it rounds once on a way
    round_trip: int = 0  # microseconds, the longest between two hosts; 0: not known


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
    network: JobNetwork, hosts: Hosts, exchange: Exchange, schedule: str, most_chunk: int
) -> Derived | None:
    """The fastest forest for a collective; None: there is none for it, or nothing is sent.

    `hosts` are the ranks of each host of the network. `schedule`: the one without a network, to
    compare with.
    """
    found = _fastest(network, hosts, exchange, most_chunk)
    if found is None:
        return None
    today = _today(schedule, hosts, exchange)
    without = busiest(network, hosts, today, WAYS[exchange.collective])
    return Derived(found[0], network, found[1], without)


@lru_cache(maxsize=256)
def _fastest(
    network: JobNetwork, hosts: Hosts, exchange: Exchange, most_chunk: int
) -> tuple[Forest, Fraction] | None:
    """The forest that `derive` finds, whatever it is compared with, and its seconds."""
    world, way = sum(map(len, hosts)), WAYS.get(exchange.collective)
    if way is None or len(hosts) == 1 or world > MOST_RANKS or not sum(exchange.sizes):
        return None
    forests = _forests(network, hosts, exchange)
    if not forests:
        return None
    times = [busiest(network, hosts, _carried(forest, exchange), way) for forest in forests]
    seconds = min(times)
    forest = forests[times.index(seconds)]
    carried = [carried // UNIT for _, carried in _carried(forest, exchange)]
    told = ((tree.parents, CONTROL * UNIT) for tree in forest.trees)
    row_ns = network.costs.transfer_ns * _transfers(forest, way)
    row_ns += int(busiest(network, hosts, told, way) * NANOSECONDS)
    chunk = _chunk(carried, seconds, row_ns, most_chunk)
    if exchange.one_hop:  # each chunk has a head, or a scale, of its own
        chunk = min(max(chunk, LEAST_CODED), most_chunk)
    rows = max(-(-max(carried) // chunk), 1)
    latency_ns = max(network.costs.latency_ns, exchange.round_trip * MICROSECONDS // 2)
    return Forest(forest.trees, chunk, _ahead(seconds / rows, latency_ns)), seconds


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
    hosts = tuple((rank,) for rank in range(len(network.hosts)))
    found = derive(network, hosts, Exchange("all_reduce", (LARGE,)), "direct", LONGEST)
    if found is None:
        return f"none: {len(network.hosts)} hosts; plans are for 2 to {MOST_RANKS} ranks"
    name, why = decided("direct", "each byte crosses the network twice", found)
    return f"{name}: {why}"


def gain_over(present: JobNetwork, network: JobNetwork) -> Fraction:
    """How many times as fast a large all-reduce with one rank per host is, on `network`, if it is
    planned for that and not for `present`."""
    return _seconds(present, network) / _seconds(network, network)


def _seconds(plan: JobNetwork, network: JobNetwork) -> Fraction:
    """Of that all-reduce on `network`, as it is planned for `plan`."""
    hosts = tuple((rank,) for rank in range(len(plan.hosts)))
    exchange, way = Exchange("all_reduce", (LARGE,)), WAYS["all_reduce"]
    found = derive(plan, hosts, exchange, "direct", LONGEST)
    trees = _today("direct", hosts, exchange)
    if found is not None and decided("direct", "", found)[0] == FOREST:
        trees = _carried(found.forest, exchange)
    return busiest(network, hosts, trees, way)


def _forests(network: JobNetwork, hosts: Hosts, exchange: Exchange) -> list[Forest]:
    """Candidates, the simplest first, with chunks of any size; none: no forest is possible."""
    if exchange.one_hop and (exchange.collective != "all_reduce" or max(map(len, hosts)) > 1):
        return []
    if exchange.collective in ROOTED:
        return [from_root(network, hosts, exchange.root)]
    if exchange.collective != "all_reduce":
        return [owned_by_ranks(network, hosts)]
    over_hosts = [one_switch(network, ALIGNMENT)]
    if not exchange.one_hop:
        over_hosts.append(two_levels(network, ALIGNMENT))
    return [rotated(each.forest, hosts) for each in over_hosts]


def _today(
    schedule: str, hosts: Hosts, exchange: Exchange
) -> Iterator[tuple[tuple[int, ...], int]]:
    """The trees of the schedule without a network: stars between ranks or between hosts, or a
    binomial tree."""
    world, sizes, root = sum(map(len, hosts)), exchange.sizes, exchange.root
    if schedule == "tree":
        parents = (binomial(rank, world, root).parent for rank in range(world))
        yield tuple(ROOT if parent is None else parent for parent in parents), sizes[0] * UNIT
    elif schedule == "hierarchical":
        stars = (_star(host, len(hosts)) for host in range(len(hosts)))
        shares = integer_shares([Fraction(1)] * len(hosts))
        trees = tuple(Tree(share, star) for star, share in zip(stars, shares, strict=True))
        yield from _carried(rotated(Forest(trees, ALIGNMENT), hosts), exchange)
    else:
        at_root = exchange.collective in ROOTED
        for owner in (root,) if at_root else range(world):
            part = sizes[owner] if len(sizes) > 1 else sizes[0]
            split = 1 if at_root or len(sizes) > 1 else world
            yield _star(owner, world), part * UNIT // split


def _star(root: int, world: int) -> tuple[int, ...]:
    return tuple(ROOT if rank == root else root for rank in range(world))


def _carried(forest: Forest, exchange: Exchange) -> Iterator[tuple[tuple[int, ...], int]]:
    sizes = exchange.sizes
    for tree in forest.trees:
        carried = sizes[0] * tree.share if len(sizes) == 1 else sizes[tree.root] * UNIT
        yield tree.parents, carried


def busiest(network: JobNetwork, hosts: Hosts, trees: Carried, way: Directions) -> Fraction:
    """Seconds of the link that needs most: a host's own, or the uplink of a rack. Bytes between
    ranks of one host stay in memory."""
    host_of = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    rack = {host: number for number, group in enumerate(network.groups) for host in group}
    out, into = [0] * len(hosts), [0] * len(hosts)
    up, down = [0] * len(network.groups), [0] * len(network.groups)
    for parents, carried in trees:
        for rank, above in enumerate(parents):
            if above == ROOT or host_of[rank] == host_of[above]:
                continue
            child, parent = host_of[rank], host_of[above]
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


def _transfers(forest: Forest, way: Directions) -> int:
    """Transfers of a row, a chunk of every tree, to and from the rank that has most."""
    edges = [0] * forest.world
    for tree in forest.trees:
        for rank, children in enumerate(tree.children):
            edges[rank] += len(children) + (tree.parents[rank] != ROOT)
    return max(edges) * (way.up + way.down)


def _ahead(row: Fraction, latency_ns: int) -> int:
    """Rows that may be on their way up and down again, if a row takes `row` seconds: as few as keep
    the links busy. More of them fill the links with contributions first, so that uplinks wait for
    sums later: 2 racks of 4 hosts reached 0.84 of their bound so, and 0.93 with two rows."""
    return LEAST_AHEAD + round(Fraction(2 * DEPTH * latency_ns, NANOSECONDS) / row)


def _chunk(carried: Sequence[int], seconds: Fraction, row_ns: int, most: int) -> int:
    """Bytes of the chunks of the tree that carries most; `carried`: bytes of each tree, `row_ns`:
    time of a row's control, of CPU and links. With K rows an operation of T seconds takes
    (K + DEPTH) / K x T, and the time of K rows: least with K = sqrt(DEPTH x T / that of one)."""
    count = isqrt(int(DEPTH * seconds * NANOSECONDS / max(row_ns, 1))) or 1
    wanted = max(-(-max(carried) // count), -(-sum(carried) // MOST_CHUNKS))
    whole = (wanted + SEGMENT // 2) // SEGMENT * SEGMENT
    return min(max(whole, LEAST_CHUNK), most, LONGEST)
