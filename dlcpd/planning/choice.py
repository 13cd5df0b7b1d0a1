"""Chooses the schedule of an all-reduce by predicted time, and says why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.planning.cost import Link, Prediction, predict
from dlcpd.schedules.builders import all_reduce, forest
from dlcpd.schedules.derive import WORTH
from dlcpd.schedules.forest import Forest
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.shares import one_switch, two_levels

CHUNKS: Final = (64 << 10, 256 << 10, 1 << 20)  # bytes: smaller ones overlap more, and cost more
MOST_ONE_SHOT: Final = 256 << 10  # bytes of a tensor that every rank sends to every other
DIRECT: Final = "direct"
ONE_SHOT: Final = "one_shot"

Programs = Sequence[Program]  # of all ranks


@dataclass(frozen=True, slots=True)
class ChosenSchedule:
    """`gain`: the predicted time of direct in units of that of the chosen schedule."""

    name: str
    prediction: Prediction
    gain: float
    why: str


def candidates(network: JobNetwork, size: int) -> dict[str, Programs]:
    """The schedules to compare, by name; a name has the kilobytes of a chunk behind it."""
    world = len(network.hosts)
    ranks = range(world)
    made: dict[str, Programs] = {
        DIRECT: [all_reduce.direct(rank, world, size, CHUNKS[-1]) for rank in ranks]
    }
    if size <= MOST_ONE_SHOT:
        made[ONE_SHOT] = [all_reduce.one_shot(rank, world, size) for rank in ranks]
    for chunk in CHUNKS if world > 1 else ():
        made[f"star {chunk >> 10}"] = _planted(one_switch(network, chunk).forest, size)
        if len(network.groups) > 1:
            made[f"racks {chunk >> 10}"] = _planted(two_levels(network, chunk).forest, size)
    return made


def choose(given: Mapping[str, Programs], network: JobNetwork, cores: int = 1) -> ChosenSchedule:
    """The fastest schedule by prediction. `given` has DIRECT, which stays where others gain less
    than WORTH, which is within the model's error too."""
    predicted = {name: predict(made, network, cores) for name, made in given.items()}
    direct = predicted[DIRECT]
    name = min(predicted, key=lambda each: predicted[each].seconds)
    if direct.seconds <= predicted[name].seconds * WORTH:
        return ChosenSchedule(DIRECT, direct, 1.0, f"gain 1.00: {_no_gain(network, direct)}")
    best = predicted[name]
    gain = direct.seconds / best.seconds
    return ChosenSchedule(
        name, best, gain, f"gain {gain:.2f}: {_gain(network, name, best, direct)}"
    )


def _planted(trees: Forest, size: int) -> Programs:
    return [forest.all_reduce(rank, size, trees) for rank in range(trees.world)]


def _no_gain(network: JobNetwork, direct: Prediction) -> str:
    if direct.link is None:
        return "one host: nothing is sent"
    if direct.cpu_seconds > direct.bytes_seconds:
        return "the CPU is the limit, and direct costs it least"
    uplinks = {(rack.up_bps, rack.down_bps, len(rack.hosts)) for rack in network.racks}
    if len({(host.out_bps, host.in_bps) for host in network.hosts}) == 1 and len(uplinks) <= 1:
        return "all hosts are equal, direct is optimal"
    return f"{_named(network, direct.link)} limits direct as much as other schedules"


def _gain(network: JobNetwork, name: str, best: Prediction, direct: Prediction) -> str:
    if name == ONE_SHOT:
        return "the tensor is small, and one round is faster than two"
    if direct.link is None or best.link is None:  # nothing is sent, so nothing is gained
        return "one host"
    return (
        f"{_named(network, direct.link)} takes {direct.seconds * 1e3:.3g} ms with equal shares, "
        f"{_named(network, best.link)} {best.seconds * 1e3:.3g} ms with these trees"
    )


def _named(network: JobNetwork, link: Link) -> str:
    kind, number, way = link
    if kind == "host":
        return f"host {network.hosts[number].name} {('out', 'in')[way]}"
    return f"uplink of rack {number} {('out', 'in')[way]}"
