"""`dlcpctl bench plan`: planned schedules against a ring, `direct`, and the network's bound.

In virtual time: no datagram leaves this process. CPU time depends on the machine; all other figures
depend on the arguments alone.
"""

import argparse
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

from dlcp_lab.bench.plan_cases import CASES, LEAST
from dlcp_lab.bench.plan_tables import costs, searches
from dlcp_lab.report.amounts import duration, show_size, size
from dlcp_lab.report.arguments import add_repetition, add_some
from dlcp_lab.report.measured import Rows, wrong_results
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.simulation.planned import (
    DIRECT,
    PLANNED,
    SKEW,
    PlanCase,
    PlanTimes,
    network_of,
    programs,
    run,
)
from dlcpd import __version__
from dlcpd.cli.grammar import Commands, command, whole
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.io import own_costs
from dlcpd.io.config import EngineConfig
from dlcpd.io.engine import Engine
from dlcpd.schedules.derive import effect

RING: Final = "ring"
TABLES: Final = ("schedules", "costs", "searches")
QUICK: Final = 8  # part of the bytes
MOST_SECONDS: Final = 1.0  # of a round trip
HEADER: Final = (
    "case", "size", "ring(ms)", "direct(ms)", "planned(ms)", "ring/planned", "ring/bound",
    "direct/planned", "bound(ms)", "share of bound", "uplink bytes/least", "program", "drops",
    "CPU(s)", "#wrong",
)  # fmt: skip
WORDS: Final = (
    "bound: seconds that no schedule undercuts, by the cuts around hosts and around racks, with "
    "all headers",
    "ring/bound: the most that any plan can gain over the ring",
    "uplink bytes/least: what the plan sends out of all racks, with control, against the least",
    "program: that of the plan; direct where all links are as busy without a plan:",
)


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A case. Times are medians, virtual seconds."""

    case: str
    collective: str
    hosts: int
    size: int  # bytes
    ring: float | None  # None: the collective has no ring
    direct: float
    planned: float
    bound: float
    uplink_ratio: float | None  # None: one switch
    program: str  # DIRECT: the plan has no other
    dropped: int  # of the planned operations
    wrong: int
    cpu: float  # seconds of this process
    samples: dict[str, list[float]]  # by schedule

    @property
    def share(self) -> float:
        """The part of the bound that the plan reaches."""
        return self.bound / self.planned


def add_plan(operations: Commands) -> None:
    """Add `plan`."""
    text = "Planned schedules in virtual time, against a ring, direct, and the network's bound."
    made = command(operations, "plan", plan, text)
    add_some(made, "--tables", TABLES)
    add_some(made, "--cases", CASES)
    text = "the cost model has the CPU costs of an engine on this machine, measured now"
    made.add_argument("--measured", action="store_true", help=text)
    made.add_argument(
        "--operations",
        type=whole(1, 1000),
        default=1,
        metavar="K",
        help="operations that count, per schedule and seed (%(default)s)",
    )
    made.add_argument(
        "--warmup", type=whole(0, 100), default=2, metavar="N", help="before them (%(default)s)"
    )
    made.add_argument(
        "--round-trip", type=duration, default="200us", help="time without data (%(default)s)"
    )
    made.add_argument(
        "--buffer", type=size, default="1M", help="bytes that a port holds (%(default)s)"
    )
    add_repetition(made)


def plan(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong, or a figure falls short.

    Raises: BadConfig.
    """
    if options.round_trip > MOST_SECONDS:
        raise BadConfig(f"--round-trip: {options.round_trip:g} s is out of range: at most 1 s")
    found, rows, heading = Findings(), Rows(PlanRow), _heading(options)
    tables: dict[str, Any] = {"rows": []}
    if "schedules" in options.tables:
        rows = _schedules(options, output, heading)
        tables["rows"] = [each | _figures(each) for each in rows.document()]
        for row in rows if not options.quick else ():
            _claim(row, found)
    if "costs" in options.tables:
        here = own_costs.measured(Engine, EngineConfig()) if options.measured else None
        rows_of_costs = costs(output, found, here)
        tables["costs"] = [asdict(row) | {"ratio": row.ratio} for row in rows_of_costs]
    if "searches" in options.tables:
        tables["searches"] = searches(output, found).document()
    for claim in found.claims:
        output.line(claim.line())
    claims = [{**asdict(claim), "holds": claim.holds} for claim in found.claims]
    output.document(
        {
            "command": "bench plan",
            "version": __version__,
            "conditions": heading,
            "seeds": _seeds(options),
            **tables,
            "claims": claims,
        }
    )
    return 1 if any(row.wrong for row in rows) or not all(c.holds for c in found.claims) else 0


def _schedules(options: argparse.Namespace, output: Output, heading: str) -> Rows[PlanRow]:
    """The table of schedules."""
    rows = Rows(PlanRow)
    for number, name in enumerate(options.cases, 1):
        case = CASES[name]
        if options.quick:
            case = replace(case, size=case.size // QUICK)
        output.progress(f"{number} of {len(options.cases)}: {name}, {case.hosts} hosts")
        labels = {"case": name, "collective": case.collective, "hosts": case.hosts}
        shown = (name, show_size(case.size))
        rows.add(labels | {"size": case.size}, partial(_row, name, case, options), shown)
    output.line(heading)
    output.line(rows.render(HEADER, _cells, left=1))
    why = (f"  {row.case}: {effect(CASES[row.case].network)}" for row in rows if row.ring)
    for line in (*WORDS, *why, *rows.reasons(), *wrong_results(rows, lambda row: row.case)):
        output.line(line)
    return rows


def _claim(row: PlanRow, found: Findings) -> None:
    """The figures asked of a case."""
    least = LEAST.get(row.case)
    if least is None:
        return
    most = (row.ring or 0.0) / row.bound
    ring, over_ring = "ring / plan", least.over_ring
    if least.share and over_ring > most * least.share:  # more is not asked of the bound
        ring += f" ({over_ring:g} was asked; the bound allows {most:.2f}; {least.share:g} of it)"
        over_ring = most * least.share
    for what, value, limit in (
        ("share of the bound", row.share, least.share),
        (ring, (row.ring or 0.0) / row.planned, over_ring),
        ("direct / plan", row.direct / row.planned, least.over_direct),
    ):
        if limit:
            found.claim(f"{row.case}: {what}", value, limit, at_most=False)
    if least.uplink:
        what = f"{row.case}: bytes on uplinks / the least"
        found.claim(what, row.uplink_ratio or 0.0, least.uplink)
    if least.same:
        what = f"{row.case}: programs that differ from those of direct"
        found.claim(what, float(row.program != DIRECT), 0.0)


def _figures(row: dict[str, object]) -> dict[str, object]:
    """Figures that follow from the fields of a row, for the JSON."""
    bound, planned = row["bound"], row["planned"]
    if not isinstance(bound, float) or not isinstance(planned, float):
        return {"share": None}
    return {"share": bound / planned}


def _seeds(options: argparse.Namespace) -> int:
    return 1 if options.quick else int(options.seeds)


def _row(name: str, case: PlanCase, options: argparse.Namespace) -> PlanRow:
    """Raises: NotCompleted."""
    schedules = ([RING] if case.collective == "all_reduce" else []) + [DIRECT, PLANNED]
    made = {each: _measured(case, each, options) for each in schedules}
    times = {each: [t for one in runs for t in one.times] for each, runs in made.items()}
    everything = [one for runs in made.values() for one in runs]
    same = programs(case, PLANNED) == programs(case, DIRECT)
    uplinks = median(one.uplink_bytes for one in made[PLANNED])
    return PlanRow(
        name,
        case.collective,
        case.hosts,
        case.size,
        median(times[RING]) if RING in times else None,
        median(times[DIRECT]),
        median(times[PLANNED]),
        case.bound,
        uplinks / case.least_uplink_bytes if case.network.racks else None,
        DIRECT if same else "forest",
        sum(one.dropped for one in made[PLANNED]),
        sum(one.wrong for one in everything),
        sum(one.cpu for one in everything),
        times,
    )


def _measured(case: PlanCase, schedule: str, options: argparse.Namespace) -> list[PlanTimes]:
    """A run of each seed. Raises: NotCompleted."""
    return [
        run(
            case,
            network_of(case, options.round_trip, options.buffer, seed),
            schedule,
            warmup=options.warmup,
            repeat=options.operations,
        )
        for seed in range(1, _seeds(options) + 1)
    ]


def _heading(options: argparse.Namespace) -> str:
    return (
        f"virtual time, {show_size(options.buffer)} per port, round trip "
        f"{options.round_trip * 1e6:g} us, ranks begin within {SKEW * 1e3:g} ms; medians of "
        f"{options.operations} operations after {options.warmup}, seeds 1..{_seeds(options)}"
    )


def _cells(row: PlanRow) -> list[object]:
    return [
        row.case,
        show_size(row.size),
        None if row.ring is None else f"{row.ring * 1e3:.0f}",
        f"{row.direct * 1e3:.0f}",
        f"{row.planned * 1e3:.0f}",
        None if row.ring is None else f"{row.ring / row.planned:.2f}",
        None if row.ring is None else f"{row.ring / row.bound:.2f}",
        f"{row.direct / row.planned:.2f}",
        f"{row.bound * 1e3:.0f}",
        f"{row.share:.2f}",
        None if row.uplink_ratio is None else f"{row.uplink_ratio:.2f}",
        row.program,
        row.dropped,
        f"{row.cpu:.0f}",
        row.wrong,
    ]
