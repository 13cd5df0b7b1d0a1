"""The cost model against the simulated core, on networks and sizes that were not used to fit it."""

from functools import cache
from typing import Final

import pytest

from dlcp_lab.simulation.cost_cells import CELLS, CostRow, behind, rows_of, schedules
from dlcpd.schedules.network import Costs

HERE: Final = Costs(26_000, 800, 80_000, 0)  # of an engine on two cores of a virtual machine
BUSY: Final = ("small, 5 x 600", "small, 4 x 25,000, CPU", "5 x 10,000, CPU", "3000, 4 x 10,000")


@cache
def rows(name: str, costs: Costs | None = None) -> list[CostRow]:
    return list(rows_of(name, costs))


def test_there_are_24_cells() -> None:
    """With equal times, two schedules are the same program."""
    assert len({(name, row.simulated) for name in CELLS for row in rows(name)}) >= 24


@pytest.mark.parametrize(
    ("name", "schedule"), [(name, schedule) for name in CELLS for schedule in schedules(name)]
)
def test_a_prediction_is_within_25_percent(name: str, schedule: str) -> None:
    [row] = [row for row in rows(name) if row.schedule == schedule]
    assert 0.75 <= row.ratio <= 1.25


@pytest.mark.parametrize("name", BUSY)
def test_so_is_one_with_the_costs_of_a_real_engine(name: str) -> None:
    """Where the CPU takes a part."""
    assert all(0.75 <= row.ratio <= 1.25 for row in rows(name, HERE)), rows(name, HERE)


def test_the_chosen_schedule_is_within_10_percent_of_the_best_in_9_of_10() -> None:
    assert sum(behind(rows(name)) <= 1.1 for name in CELLS) >= 0.9 * len(CELLS)
