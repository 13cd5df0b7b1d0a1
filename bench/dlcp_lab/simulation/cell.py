"""One condition of a network, and the times of all-reduces under it."""

from dataclasses import dataclass

import numpy as np

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.fabric import star
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.schedules.catalog import Place, chunk
from dlcpd.schedules.draft import LONGEST

SEGMENT = 1408  # bytes
CHUNK = 745  # segments: about a megabyte, as the setting `chunk_bytes`
GRANT = 32 << 20  # bytes
LEAST, MOST = 2, 16  # datagrams of a train; in this range, a hundredth of a round trip
PEER_TIMEOUT = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class SimCondition:
    """Hosts at one switch."""

    hosts: int
    rate_bps: float  # of each wire
    round_trip: float  # seconds, without data
    loss: float  # fraction of the datagrams
    burst: float  # datagrams that are lost in sequence, on average
    size: int  # bytes of an all-reduce


@dataclass(frozen=True, slots=True)
class SimTimes:
    """All-reduces of one mode."""

    times: list[float]  # seconds of each
    wrong: int  # results that were not bit-equal to the reference, or not the same on all ranks
    datagrams: int
    lost: int
    dropped: int  # by a full queue


def all_reduces(
    condition: SimCondition, max_loss: float, *, warmup: int, repeat: int, seed: int
) -> SimTimes:
    """The times of `repeat` operations, one after the other; 0: exact.

    Raises: NotCompleted.
    """
    network = _network(condition, seed)
    parts = draw("float32", condition.hosts, condition.size // 4, seed)
    reference = rank_ordered(parts, "float32", "sum")
    name = "gradient" if max_loss else ""
    times, wrong = [], 0
    for number in range(1, warmup + repeat + 1):
        results = copies(parts)
        begun = network.now
        network.submit_all(number, results, max_loss=max_loss, name=name, deadline=1000.0)
        times.append(network.complete(number) - begun)
        expected = results[0] if max_loss else reference
        wrong += any(not np.array_equal(each, expected) for each in results)
    fabric = network.fabric
    return SimTimes(times[warmup:], wrong, network.carried, fabric.lost, fabric.dropped)


def _network(condition: SimCondition, seed: int) -> BurstNetwork:
    rate, round_trip = condition.rate_bps, condition.round_trip
    plan = star(
        condition.hosts, rate, round_trip, loss=condition.loss, burst=condition.burst, seed=seed
    )
    return BurstNetwork(
        condition.hosts,
        plan,
        train_time=(train_of(condition) + 0.5) * SEGMENT * 8 / rate,
        segment_size=SEGMENT,
        chunk_segments=_chunk(condition),
        grant=GRANT,
        peer_timeout=PEER_TIMEOUT,
        seed=seed,
    )


def train_of(condition: SimCondition) -> int:
    """Datagrams that one event moves: at most a hundredth of a round trip."""
    each = SEGMENT * 8 / condition.rate_bps
    return min(max(int(condition.round_trip / 100 / each), LEAST), MOST)


def _chunk(condition: SimCondition) -> int:
    """Segments of the chunk that engines choose, rounded up: a shard has equally many chunks."""
    alone = tuple((rank,) for rank in range(condition.hosts))
    place = Place(0, alone, LONGEST, round_trip=int(condition.round_trip * 1e6))
    return -(-chunk(place, condition.size // condition.hosts) // SEGMENT)
