"""Catalog of all schedules by collective and name, with their builders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dlcpd.schedules.builders import (
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    forest,
    gather,
    point_to_point,
    reduce,
    reduce_scatter,
)
from dlcpd.schedules.builders.exchange import exchange
from dlcpd.schedules.builders.hierarchical import Hosts, hierarchical
from dlcpd.schedules.builders.ring import ring
from dlcpd.schedules.builders.tree import tree
from dlcpd.schedules.derive import Derived, Exchange, derive
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.forest import Forest
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import ring_order

OVERLAP: Final = 4  # minimum of chunks in a shard, unless they are smaller than LEAST_CHUNK
LEAST_CHUNK: Final = 1 << 20  # bytes; each further chunk costs 0.1 ms of CPU
LONG: Final = 1_000  # microseconds: a round trip from which the next constant holds
# Bytes. Lost segments of a chunk are retransmitted while the next chunks travel.
LEAST_ON_LONG: Final = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A requested collective. All fields but "this rank's own" must be equal on all ranks."""

    collective: str  # a key of CATALOG
    size: int = 0  # bytes, if all ranks have equally many
    sizes: tuple[int, ...] = ()  # bytes of each rank's part, where they may differ
    root: int = 0
    lossy: bool = False  # whether the policy lets at least one segment go missing
    peer: int = 0  # this rank's own, of "send" and "receive"
    sends: tuple[int, ...] = ()  # this rank's own, of "all_to_all": bytes for each rank
    receives: tuple[int, ...] = ()  # this rank's own: bytes from each
    codec: str = ""  # see numerics.codecs; empty: values are not encoded; of results if `computes`
    item: int = 1  # bytes of an element, if there is a codec
    computes: bool = False  # whether the client computes the results of an all_reduce from the sums
    adds: bool = False  # this rank's own: whether the client adds its part of a reduce_scatter


@dataclass(frozen=True, slots=True)
class Place:
    """A rank among the hosts of its group, and the chunk size."""

    rank: int
    hosts: Hosts  # the ranks of every host: all ranks of the group, each once
    chunk_bytes: int  # at most; a multiple of 64
    network: JobNetwork | None = None  # of these hosts, in this order; None: not known
    round_trip: int = 0  # microseconds, the longest between two hosts of the job; 0: not known

    @property
    def world(self) -> int:
        return sum(map(len, self.hosts))


Arguments = Callable[[Task, Place], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a schedule is built: `build(rank, *arguments)`."""

    build: Callable[..., Program]
    arguments: Arguments
    common: Arguments | None = None  # arguments that are equal on all ranks; None: all are
    pair: str = ""  # common name of two collectives that are the ends of one transfer


def chunk(place: Place, shard: int) -> int:
    """Bytes of a chunk, small enough in a small shard that one travels while the next is added."""
    least = LEAST_CHUNK if place.round_trip < LONG else LEAST_ON_LONG
    wanted = -(-shard // OVERLAP // ALIGNMENT) * ALIGNMENT
    return min(max(wanted, least), place.chunk_bytes, LONGEST)


def derived(task: Task, place: Place, schedule: str) -> Derived | None:
    """The forest for a task, compared with `schedule`; None: there is none."""
    network, hosts = place.network, place.hosts
    if network is None or len(network.hosts) != len(hosts):
        return None
    sizes = task.sizes or (task.size,)
    coded, round_trip = bool(task.codec), place.round_trip
    exchange = Exchange(task.collective, sizes, task.root, one_hop=coded, round_trip=round_trip)
    return derive(network, hosts, exchange, schedule, place.chunk_bytes)


def _forest_of(task: Task, place: Place) -> Forest:
    """Raises: UnknownSchedule."""
    found = derived(task, place, "direct")
    if found is None:
        raise UnknownSchedule(
            f"no forest for {task.collective}: it needs the network of two hosts or more"
        )
    return found.forest


def _tensor_forest(task: Task, place: Place) -> tuple[Any, ...]:
    return task.size, _forest_of(task, place)


def _rooted_forest(task: Task, place: Place) -> tuple[Any, ...]:
    return task.size, task.root, _forest_of(task, place)


def _parts_forest(task: Task, place: Place) -> tuple[Any, ...]:
    return task.sizes, _forest_of(task, place)


def _sized(task: Task, place: Place) -> tuple[Any, ...]:
    return place.world, task.size


def _chunked(task: Task, place: Place) -> tuple[Any, ...]:
    shard = task.size // place.world
    return place.world, task.size, chunk(place, shard)


def _in_order(task: Task, place: Place) -> tuple[Any, ...]:
    """With the order of a ring, unless ranks are in it: it enters each rack of hosts once."""
    network, hosts = place.network, place.hosts
    if network is None or len(network.hosts) != len(hosts):
        return _chunked(task, place)
    order = tuple(rank for host in ring_order(network) for rank in hosts[host])
    if order == tuple(range(place.world)):
        return _chunked(task, place)
    return (*_chunked(task, place), order)


def _computed(task: Task, place: Place) -> tuple[Any, ...]:
    return (*_chunked(task, place), True) if task.computes else _chunked(task, place)


def _whole_chunked(task: Task, place: Place) -> tuple[Any, ...]:
    return place.world, task.size, chunk(place, task.size)


def _by_host(task: Task, place: Place) -> tuple[Any, ...]:
    shards = len(place.hosts) * min(map(len, place.hosts))
    found = place.hosts, task.size, chunk(place, task.size // shards)
    return (*found, True) if task.computes else found


def _rooted(task: Task, place: Place) -> tuple[Any, ...]:
    return place.world, task.size, task.root, chunk(place, task.size)


def _parts(task: Task, place: Place) -> tuple[Any, ...]:
    return task.sizes, task.root


def _reduced_parts(task: Task, place: Place) -> tuple[Any, ...]:
    return task.sizes, min(place.chunk_bytes, LONGEST)


def _one_pair(task: Task, place: Place) -> tuple[Any, ...]:
    return task.peer, task.size


def _size(task: Task, place: Place) -> tuple[Any, ...]:
    return (task.size,)


def _world(task: Task, place: Place) -> tuple[Any, ...]:
    return (place.world,)


CATALOG: Final[dict[str, dict[str, Recipe]]] = {
    "all_reduce": {
        "direct": Recipe(all_reduce.direct, _computed),
        "one_shot": Recipe(all_reduce.one_shot, _sized),
        "ring": Recipe(ring, _in_order),
        "tree": Recipe(tree, _whole_chunked),
        "exchange": Recipe(exchange, _sized),
        "hierarchical": Recipe(hierarchical, _by_host, lambda t, p: (*_by_host(t, p), "halved")),
        "forest": Recipe(forest.all_reduce, _tensor_forest),
    },
    "broadcast": {
        "direct": Recipe(broadcast.direct, _rooted),
        "tree": Recipe(broadcast.tree, _rooted),
        "forest": Recipe(forest.broadcast, _rooted_forest),
    },
    "reduce": {
        "direct": Recipe(reduce.direct, _rooted),
        "tree": Recipe(reduce.tree, _rooted),
        "forest": Recipe(forest.reduce, _rooted_forest),
    },
    "all_gather": {
        "direct": Recipe(gather.all_gather, lambda t, p: (t.sizes,)),
        "forest": Recipe(forest.all_gather, _parts_forest),
    },
    "gather": {"direct": Recipe(gather.gather, _parts)},
    "scatter": {"direct": Recipe(gather.scatter, _parts)},
    "reduce_scatter": {
        "direct": Recipe(
            reduce_scatter.reduce_scatter,
            lambda t, p: (*_reduced_parts(t, p), t.adds),
            _reduced_parts,
        ),
        "forest": Recipe(forest.reduce_scatter, _parts_forest),
    },
    "all_to_all": {
        "direct": Recipe(all_to_all.all_to_all, lambda t, p: (t.sends, t.receives), _world)
    },
    "barrier": {"direct": Recipe(barrier.barrier, _world)},
    "send": {"direct": Recipe(point_to_point.send, _one_pair, _size, "point_to_point")},
    "receive": {"direct": Recipe(point_to_point.receive, _one_pair, _size, "point_to_point")},
}
