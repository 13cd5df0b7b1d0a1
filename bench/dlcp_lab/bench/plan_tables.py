"""Tables of `dlcpctl bench plan` beside its schedules: the cost model, and the search for trees."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from dlcp_lab.report.measured import Rows
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.simulation.cost_cells import CELLS, CostRow, behind, rows_of
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.planning import bounds, classes, packing
from dlcpd.planning.graph import Graph, Rates, in_racks, one_switch
from dlcpd.planning.packing import Packing
from dlcpd.schedules.network import Costs

MOST_ERROR: Final = 0.25  # of a prediction
BEHIND: Final = 1.1  # a chosen schedule's time in units of the best one's
ENOUGH_CELLS: Final = 0.9  # part of the cells that are within it
COST_HEADER: Final = ("cell", "schedule", "predicted(ms)", "simulated(ms)", "ratio", "chosen")
SEARCH_HEADER: Final = ("network", "hosts", "trees", "share of bound", "CPU(s)")
ENOUGH_RATE: Final = 0.949  # of the bound: trees are dropped while 95 % remain


def costs(output: Output, found: Findings, here: Costs | None) -> list[CostRow]:
    """The cost model against the simulated core, on all cells, with CPU costs of `here` or, without
    any, of each cell."""
    rows, late = list[CostRow](), list[float]()
    for number, name in enumerate(CELLS, 1):
        output.progress(f"cost model, {number} of {len(CELLS)}: {name}")
        of_cell = list(rows_of(name, here))
        late.append(behind(of_cell))
        rows += of_cell
    output.line(f"\ncost model; its cells were not used to fit it{_said(here)}")
    output.line(table.render(COST_HEADER, list(map(_cost_cells, rows)), left=2))
    error = max(abs(row.ratio - 1) for row in rows)
    found.claim(f"cost model: largest error of {len(rows)} predictions", error, MOST_ERROR)
    near = sum(each <= BEHIND for each in late) / len(late)
    what = f"cost model: cells whose chosen schedule is within {BEHIND:g} of the best"
    found.claim(what, near, ENOUGH_CELLS, at_most=False)
    return rows


def _said(here: Costs | None) -> str:
    if here is None:
        return ""
    of = f"a transfer {here.transfer_ns / 1e3:.3g} us, a datagram {here.datagram_ns / 1e3:.3g} us"
    return f"; measured here: {of}, a wake-up {here.wake_up_ns / 1e3:.3g} us"


def _cost_cells(row: CostRow) -> list[object]:
    return [
        row.cell,
        row.schedule,
        f"{row.predicted * 1e3:.3g}",
        f"{row.simulated * 1e3:.3g}",
        f"{row.ratio:.2f}",
        "chosen" if row.chosen else None,
    ]


@dataclass(frozen=True, slots=True)
class SearchCase:
    """A network whose trees are searched for, and the most CPU seconds that this may take."""

    make: Callable[[], Graph]
    search: Callable[[Graph], Packing]
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchRow:
    """Result of a search; CPU seconds depend on the machine."""

    network: str
    hosts: int
    trees: int
    share: float  # of the bound
    cpu: float


def _switch(*rates: tuple[int, int]) -> Graph:
    """Hosts on one switch: how many of each rate."""
    every = [rate for count, rate in rates for _ in range(count)]
    return one_switch({f"h{n}": Rates(rate, rate) for n, rate in enumerate(every)})


def racks(count: int, each: int, rate: int, uplink: int) -> Graph:
    """Equal racks of equal hosts, below one core."""
    members = [[f"h{rack}.{number}" for number in range(each)] for rack in range(count)]
    hosts = {host: Rates(rate, rate) for rack in members for host in rack}
    return in_racks(hosts, {f"r{n}": Rates(uplink, uplink) for n in range(count)}, members)


SEARCHES: Final = {
    "4 of 100, 20 of 250, 40 of 400": SearchCase(
        partial(_switch, (4, 100), (20, 250), (40, 400)), packing.all_reduce, 10.0
    ),
    "4 racks of 16": SearchCase(partial(racks, 4, 16, 400, 1600), packing.all_reduce, 10.0),
    "16 racks of 32, by classes": SearchCase(
        partial(racks, 16, 32, 400, 100), classes.all_reduce, 60.0
    ),
}


def searches(output: Output, found: Findings) -> Rows[SearchRow]:
    """The time that a search for trees takes in large networks."""
    rows = Rows(SearchRow)
    for name, case in SEARCHES.items():
        output.progress(f"search for trees: {name}")
        rows.add({"network": name}, partial(_searched, name, case))
    output.line("\nsearch for trees; rates in any unit")
    output.line(rows.render(SEARCH_HEADER, _search_cells, left=1))
    for line in rows.reasons():
        output.line(line)
    for row in rows:
        limit = SEARCHES[row.network].seconds
        found.claim(f"{row.network}: CPU seconds of the search", row.cpu, limit)
        what = f"{row.network}: rate of the trees in units of the bound"
        found.claim(what, row.share, ENOUGH_RATE, at_most=False)
    return rows


def _searched(name: str, case: SearchCase) -> SearchRow:
    """Raises: SolverMissing."""
    graph, begun = case.make(), time.process_time()
    made = case.search(graph)
    cpu = time.process_time() - begun
    share = made.rate / float(bounds.all_reduce(graph).rate)
    return SearchRow(name, len(graph.hosts), len(made.trees), share, cpu)


def _search_cells(row: SearchRow) -> list[object]:
    return [row.network, row.hosts, row.trees, f"{row.share:.3f}", f"{row.cpu:.1f}"]
