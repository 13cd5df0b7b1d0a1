"""`dlcpctl bench training`: trainings on four hosts of a congested fabric, dlcpd against Gloo."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Final

from dlcp_lab.bench.training_rows import (
    LEARNING,
    RULE,
    SPEED,
    TRANSPORTS,
    Runs,
    TrainingRow,
    honesty,
    judge,
    learning,
    row,
    speed,
)
from dlcp_lab.ranks import launch
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import broken, report
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.measured import Gap, Rows, attempt
from dlcp_lab.scenarios import congested
from dlcp_lab.scenarios.congested import ECN, HOSTS, LOSS, PATHS
from dlcp_lab.scenarios.job import on_fabric
from dlcpd import __version__
from dlcpd.cli.output import Output

# Two hosts share two uplinks: 2:1. At three times these rates forwarding, transport and training
# keep two cores busy, and the benchmark would compare CPU time per packet.
HOST_RATE, SPINE_RATE = "60mbit", "30mbit"
QUICK: Final = 0.02  # fraction of the steps with --quick; all are exact
TIMEOUT: Final = 3600.0  # seconds for one seed, which takes about twelve minutes on two cores
OTHERS: Final = congested.others("24mbit", TIMEOUT)
BURSTS: Final = OTHERS[1]

Trainings = dict[str, dict[str, Runs]]  # task -> transport -> runs, one per seed


@dataclass(slots=True)
class Goodput:
    """Assigns the intervals of the background flow to the trainings."""

    flow: Any  # dlcp_lab.emulation's Running
    begins: list[tuple[str, int]] = field(default_factory=list)

    def note(self, where: str) -> None:
        """A barrier: "TASK/TRANSPORT" begins a training, "end" ends the last one."""
        if "/" in where or where == "end":
            self.begins.append((where, len(self.flow.goodput())))

    def means(self) -> dict[str, float]:
        """Bit/s by "TASK/TRANSPORT"; a training shorter than an interval has none."""
        sums = [sum(connections) for connections in self.flow.goodput()]
        ends = [number for _, number in self.begins[1:]]
        return {
            where: fmean(sums[begin:end])
            for (where, begin), end in zip(self.begins, ends, strict=False)
            if sums[begin:end]
        }


def training(options: argparse.Namespace, output: Output) -> int:
    """Train, print, judge. Exit code 1 when a promise is broken."""
    seeds = 1 if options.quick else options.seeds
    part = QUICK if options.quick else options.share
    runs: Trainings = {}
    beside: list[dict[str, float]] = []
    failed: list[Gap] = []
    for seed in range(1, seeds + 1):
        output.progress(f"seed {seed} of {seeds}")
        plan = congested.plan(seed, HOST_RATE, SPINE_RATE, classes=not options.one_queue)
        means = attempt({"seed": f"seed {seed}"}, partial(_seed, plan, part, runs, output))
        if isinstance(means, Gap):
            failed.append(means)
        else:
            beside.append(means)
    rows = {name: _rows(name, task, beside) for name, task in runs.items()}
    checks = [check for task in runs.values() for check in judge(task)]
    _print(rows, plan, seeds, part, output)
    for line in (*(gap.line() for gap in failed), *report(checks)):
        output.line(line)
    output.document(
        {
            "command": "bench training",
            "version": __version__,
            "hosts": HOSTS,
            "plan": plan,
            "background": asdict(BURSTS),
            "tcp_congestion_control": tcp_congestion_control(),
            "seeds": seeds,
            "share_of_steps": part,
            "broken": broken(checks),
            "checks": [asdict(check) for check in checks],
            "rows": [one for task in rows.values() for one in task.document()],
            "failed": [gap.document(()) for gap in failed],
        }
    )
    return 1 if broken(checks) or not rows else 0


def _seed(plan: dict[str, Any], part: float, runs: Trainings, output: Output) -> dict[str, float]:
    """Run all trainings of one seed on a new fabric, into `runs`; the flow's goodput, bit/s."""
    work = launch.Work(
        "dlcp_lab.bench.training_rank",
        {"seed": plan["seed"], "share": part, "transports": TRANSPORTS},
        TIMEOUT,
    )
    network = {"entropy": PATHS}
    with on_fabric(plan, network) as (net, hosts), net.background(*OTHERS) as begun:
        goodput = Goodput(begun.flows[0])
        ranks = launch.run(
            hosts,
            work,
            progress=output.progress,
            at_barrier=lambda where, _: goodput.note(where),
        )
        means = goodput.means()
    for run in zip(*ranks, strict=True):
        task = runs.setdefault(run[0]["task"], {name: [] for name in TRANSPORTS})
        task[run[0]["transport"]].append(list(run))
    return means


def _rows(
    name: str, task: dict[str, Runs], beside: Sequence[dict[str, float]]
) -> Rows[TrainingRow]:
    found = Rows(TrainingRow)
    for transport in TRANSPORTS:
        where = f"{name}/{transport}"
        means = [means[where] for means in beside if where in means]
        found.add({"task": name, "transport": transport}, partial(row, transport, task, means))
    return found


def _print(
    rows: dict[str, Rows[TrainingRow]],
    plan: dict[str, Any],
    seeds: int,
    part: float,
    output: Output,
) -> None:
    queues = "a queue per traffic class" if plan["classes"] else "one queue per port"
    output.line(
        f"{HOSTS} hosts on 2 leaves and 2 spines, {HOST_RATE} to a host, {SPINE_RATE} to a "
        f"spine; {show_fraction(LOSS)} random loss per switch output, {queues}, ECN from "
        f"{ECN // 1024} KiB; background: a TCP flow without pauses, and bursts of UDP of "
        f"{BURSTS.rate}"
    )
    output.line(
        f"Gloo over TCP {tcp_congestion_control()}; dlcpd with {PATHS} source ports per path; "
        f"seeds 1..{seeds} (weights, batches, ECMP, order), {show_fraction(part)} of the steps; "
        f"all hosts share {len(os.sched_getaffinity(0))} cores; slowest rank counts; times are "
        "medians over seeds, losses and scores means"
    )
    everything = Rows(TrainingRow)
    for task in rows.values():
        everything.extend(task)
    output.line(everything.render(SPEED, speed, left=2))
    output.line()
    output.line(everything.render(LEARNING, learning, left=2))
    for line in everything.reasons():
        output.line(line)
    for task in rows.values():
        for line in honesty(task):
            output.line(line)
    output.line(RULE)
