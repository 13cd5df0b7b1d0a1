"""The cost model against the simulated core, on networks and sizes that were not used to fit it."""

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import pytest

from dlcpd.planning.choice import candidates, choose
from dlcpd.planning.cost import predict
from dlcpd.schedules.network import JobNetwork
from tests.simulation.planned import SimTimings, network_of, time_of

M: Final = 10**6
SLOW = SimTimings(200e-6, 20e-6)
FAST = SimTimings(20e-6, 5e-6)
CPU: Final = {"wake_up_ns": 10_000, "datagram_ns": 800}


class Cell(NamedTuple):
    network: JobNetwork
    timings: SimTimings
    size: int


CELLS: Final = {
    "3 x 150": Cell(network_of([150 * M] * 3, SLOW), SLOW, 600 << 10),
    "6 x 500": Cell(network_of([500 * M] * 6, SLOW), SLOW, 640 << 10),
    "40, 4 x 120": Cell(network_of([40 * M, *[120 * M] * 4], SLOW), SLOW, 640 << 10),
    "120, 5 x 250": Cell(network_of([120 * M, *[250 * M] * 5], SLOW), SLOW, 896 << 10),
    "2 racks of 2": Cell(
        network_of([300 * M] * 4, SLOW, per_rack=2, uplink=120 * M), SLOW, 896 << 10
    ),
    "3 racks of 2": Cell(
        network_of([250 * M] * 6, SLOW, per_rack=2, uplink=150 * M), SLOW, 640 << 10
    ),
    "small, 5 x 600": Cell(network_of([600 * M] * 5, SLOW), SLOW, 12 << 10),
    "small, 4 x 25,000, CPU": Cell(network_of([25_000 * M] * 4, FAST, **CPU), FAST, 24 << 10),
    "5 x 10,000, CPU": Cell(network_of([10_000 * M] * 5, FAST, **CPU), FAST, 1 << 20),
    "3000, 4 x 10,000": Cell(network_of([3000 * M, *[10_000 * M] * 4], FAST), FAST, 1536 << 10),
}
COMPARED: Final = ("direct", "one_shot", "star 64", "star 256", "racks 64", "racks 256")


def compared() -> Iterator[tuple[str, str]]:
    """Cells and schedules."""
    for name, cell in CELLS.items():
        for schedule in candidates(cell.network, cell.size):
            if schedule in COMPARED:
                yield name, schedule


@cache
def simulated(name: str, schedule: str) -> float:
    cell = CELLS[name]
    made = candidates(cell.network, cell.size)
    return time_of(cell.network, cell.timings, made[schedule], cell.size)


def test_there_are_24_cells() -> None:
    """With equal times, two schedules are the same program."""
    assert len({(name, simulated(name, schedule)) for name, schedule in compared()}) >= 24


@pytest.mark.parametrize(("name", "schedule"), list(compared()))
def test_a_prediction_is_within_25_percent(name: str, schedule: str) -> None:
    cell = CELLS[name]
    predicted = predict(candidates(cell.network, cell.size)[schedule], cell.network).seconds
    assert predicted == pytest.approx(simulated(name, schedule), rel=0.25)


def test_the_chosen_schedule_is_within_10_percent_of_the_best_in_9_of_10() -> None:
    good = 0
    for name, cell in CELLS.items():
        made = {k: v for k, v in candidates(cell.network, cell.size).items() if k in COMPARED}
        chosen = choose(made, cell.network).name
        best = min(simulated(name, schedule) for schedule in made)
        good += simulated(name, chosen) <= 1.1 * best
    assert good >= 0.9 * len(CELLS)
