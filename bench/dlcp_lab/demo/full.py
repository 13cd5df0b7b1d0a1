"""`dlcpctl demo --full`: two models over Gloo and dlcpd, and the fate of every segment."""

import argparse
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from dlcp_lab.demo.judge import SEGMENT, Trained, apart, by_task, judge
from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import on_loopback, running
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import Check, broken, report
from dlcp_lab.report.measured import Gap, attempt, figure
from dlcp_lab.report.statistic import median, quotient
from dlcp_lab.training.learning import MARKS, Run, losses_at_marks, replicas, step_times, total
from dlcp_lab.training.traffic_seen import FATES, class_rows, shares, together
from dlcpd import __version__
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.daemon.config.tables import NetworkTable

HOSTS: Final = 4
PATHS: Final = 2
LOSS: Final = 0.01  # injected
TIMEOUT: Final = 1800.0  # seconds; the demo takes about three minutes on two idle cores
QUICK: Final = 0.35  # fraction of the steps with --quick
COUNTS: Final = ("sent", "lost", "retransmitted", "waived", "reapplied")


def full(options: argparse.Namespace, output: Output) -> int:
    """Train, print, judge. Exit code 1 when a promise is broken."""
    begin = time.monotonic()
    # Loopback stands for Ethernet: with its own long segments, 1 % of a chunk would be none.
    network = NetworkTable(segment_size=SEGMENT, peer_timeout=peer_timeout())
    plans = on_loopback(HOSTS, PATHS, network=network, loss=LOSS, digest_every=1)
    output.line(
        f"{HOSTS} hosts on loopback, {PATHS} paths each; the sockets of dlcpd drop "
        f"{show_fraction(LOSS)} of the incoming datagrams (INJECTED), and Gloo's TCP loses "
        "nothing"
    )
    with running(plans) as hosts:
        work = launch.Work(
            "dlcp_lab.demo.full_rank",
            {"share": QUICK if options.quick else options.share},
            TIMEOUT,
            {"MASTER_PORT": str(free_port())},
        )
        ranks = launch.run(hosts, work, progress=output.progress)
    runs = [list(run) for run in zip(*ranks, strict=True)]
    for line in tables(runs):
        output.line(line)
    tasks = by_task(runs)
    for line in (*honesty(tasks), "", *other_order(tasks)):
        output.line(line)
    checks = [check for trained in tasks for check in judge(trained)]
    for line in report(checks):
        output.line(line)
    output.document(_document(runs, checks, time.monotonic() - begin))
    return 1 if broken(checks) else 0


def free_port() -> int:
    """A port that was free when it was probed; torchrun picks its port in the same way."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tables(runs: Sequence[Run]) -> Iterator[str]:
    """Time and learning, then segments."""
    marks = [f"loss at {mark:.0%}" for mark in MARKS]
    header = ["task", "transport", "step (ms)", *marks, "final", "", "replicas"]
    rows = [
        attempt({"task": run[0]["task"], "transport": _how(run)}, partial(_row, run))
        for run in runs
    ]
    cells = [row.cells(len(header)) if isinstance(row, Gap) else row for row in rows]
    yield table.render(header, cells, left=2)
    yield from (row.line() for row in rows if isinstance(row, Gap))
    yield ""
    booked = [run for run in runs if run[0]["books"]]
    counts = [
        [run[0]["task"], run[0]["transport"], *(total(run, n) for n in COUNTS)] for run in booked
    ]
    header = ["segments, all ranks", "", "sent", "lost", "retransmitted", "waived", "reapplied"]
    yield table.render(header, counts, left=2)
    yield ""
    yield from network(booked)
    yield ""


def _row(run: Run) -> list[object]:
    """Cells of a training. Raises: NotMeasured."""
    return [
        run[0]["task"],
        _how(run),
        f"{_median_step(run) * 1e3:.1f}",
        *(f"{loss:.4f}" for loss in losses_at_marks(run)),
        f"{run[0]['score']:.4f}",
        run[0]["score_name"],
        replicas(run),
    ]


def _median_step(run: Run) -> float:
    return median(step_times(run))


def _how(run: Run) -> str:
    """Transport, and the seed unless it is 0, the seed that all transports share."""
    transport: str = run[0]["transport"]
    return f"{transport}, seed {run[0]['seed']}" if run[0]["seed"] else transport


def network(booked: Sequence[Run]) -> Iterator[str]:
    """Fates of the datagrams, by class and by path."""
    seen = [
        ([run[0]["task"], run[0]["transport"]], together(r["books"]["network"] for r in run))
        for run in booked
    ]
    rows = [row for what, one in seen for row in class_rows(what, one)]
    header = ["datagrams, all ranks", "", "class", *FATES]
    yield table.render(header, rows, left=3)
    for (task, transport), one in seen:
        yield f"{task} over {transport}: {shares(one)}"


def honesty(tasks: Sequence[Trained]) -> Iterator[str]:
    """Trainings in which dlcpd is not faster, with the reason (P10)."""
    for trained in tasks:
        for transport in ("exact", "bounded"):
            share = figure(partial(_share, trained, transport))
            if share is not None and share < 1:
                yield (
                    f"no gain: Gloo needs {share:.2f} of the step time of {trained.name} over "
                    f"{transport}, because only dlcpd has {show_fraction(LOSS)} loss to correct "
                    f"here, and all hosts share {len(os.sched_getaffinity(0))} cores"
                )


def _share(trained: Trained, transport: str) -> float:
    """Gloo's median step over that of `transport`. Raises: NotMeasured."""
    gloo, dlcpd = (median(step_times(trained.runs[name])) for name in ("gloo", transport))
    return quotient(gloo, dlcpd)


def other_order(tasks: Sequence[Trained]) -> Iterator[str]:
    """Effect of Gloo's order of addition on the losses of the same training. Not judged."""
    for trained in tasks:
        moved = figure(partial(apart, trained.runs["gloo"], trained.runs["exact"]))
        if moved is not None:
            yield (
                f"Gloo adds in another order, which changes the losses of {trained.name} by up "
                f"to {moved:.3%}; not judged"
            )


def _document(runs: Sequence[Run], checks: Sequence[Check], seconds: float) -> dict[str, Any]:
    return {
        "command": "demo --full",
        "version": __version__,
        "hosts": HOSTS,
        "paths": PATHS,
        "injected_loss": LOSS,
        "seconds": seconds,
        "broken": broken(checks),
        "checks": [asdict(check) for check in checks],
        "runs": [
            {
                "task": run[0]["task"],
                "transport": run[0]["transport"],
                "seed": run[0]["seed"],
                "score": run[0]["score"],
                "step_seconds": figure(partial(_median_step, run)),
                "losses_at_marks": figure(partial(losses_at_marks, run)),
                "digests": [rank["digest"] for rank in run],
                "books": [r["books"] for r in run],
            }
            for run in runs
        ],
    }
