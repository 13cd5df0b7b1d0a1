"""`dlcpctl bench codecs`: bytes, CPU time and score of the demo's trainings with each codec."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.bench.codecs_cost import CodecCost, cost
from dlcp_lab.bench.training_rows import BOUNDED, EXACT, HIGHER_IS_BETTER, Runs, equal
from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, on_loopback, running
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import Check, broken, report
from dlcp_lab.report.measured import Gap, Rows, attempt
from dlcp_lab.report.statistic import least, mean, most, quotient, some
from dlcp_lab.training.compressed import CODECS, POWER_SGD, POWER_SGD_RANK
from dlcp_lab.training.learning import Run
from dlcp_lab.training.traffic_seen import together
from dlcpd import __version__
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.policy import DEFAULT_MAX_LOSS
from dlcpd.daemon.config.tables import NetworkTable

TRANSPORTS: Final = (EXACT, BOUNDED, *CODECS, POWER_SGD)
HOSTS: Final = 2
LOSS: Final = 0.01  # injected, so that segments are waived
SEGMENT: Final = 1408  # bytes: loopback stands for Ethernet
QUICK: Final = 0.05  # fraction of the steps with --quick; all are warm-up steps
TIMEOUT: Final = 3600.0  # seconds for one seed, which takes about five minutes on two cores
HEADER: Final = (
    "task", "codec", "", "score", "by seed", "worse than exact", "noise", "datagrams/exact",
)  # fmt: skip
NOISE: Final = (
    "worse: of the means over the seeds; noise: exact's largest score less its smallest; codecs "
    f"with a bound of {DEFAULT_MAX_LOSS:.0%}; warm-up steps and small buckets have no codec"
)


@dataclass(frozen=True, slots=True)
class CodecRow:
    """One codec on one task. A list has a value per seed."""

    task: str
    codec: str
    score_name: str
    score: list[float]
    worse: float  # difference of the means to exact; negative: better
    noise: float
    datagrams: float  # sent / sent by exact


def codecs(options: argparse.Namespace, output: Output) -> int:
    """Measure, train, print. Exit code 1 where ranks do not hold the same model."""
    seeds, part = (1, QUICK) if options.quick else (options.seeds, options.share)
    output.progress("CPU time")
    costs = [cost(name) for name in CODECS]
    tasks: dict[str, dict[str, Runs]] = {}
    failed: list[Gap] = []
    for seed in range(1, seeds + 1):
        output.progress(f"seed {seed} of {seeds}")
        ended = attempt({"seed": f"seed {seed}"}, partial(_train, seed, part, tasks, output))
        failed += [ended] if ended else []
    rows = Rows(CodecRow)
    for name, task in tasks.items():
        for transport in TRANSPORTS:
            rows.add({"task": name, "codec": transport}, partial(row, transport, task))
    checks = [equal(name, task) for name, task in tasks.items()]
    _print(costs, rows, seeds, part, output)
    for line in (*(gap.line() for gap in failed), *report(checks)):
        output.line(line)
    found = _document(costs, rows, checks, seeds, part)
    output.document(found | {"failed": [gap.document(()) for gap in failed]})
    return 1 if broken(checks) or not tasks else 0


def _plans(seed: int) -> Sequence[HostPlan]:
    network = NetworkTable(segment_size=SEGMENT, peer_timeout=peer_timeout())
    return on_loopback(HOSTS, network=network, loss=LOSS, seed=seed * HOSTS)


def _train(seed: int, part: float, tasks: dict[str, dict[str, Runs]], output: Output) -> None:
    """Run all trainings of one seed; the results go into `tasks`."""
    arguments = {"seed": seed, "share": part, "transports": TRANSPORTS}
    work = launch.Work("dlcp_lab.bench.training_rank", arguments, TIMEOUT)
    with running(_plans(seed)) as hosts:
        ranks = launch.run(hosts, work, progress=output.progress)
    for run in zip(*ranks, strict=True):
        runs = tasks.setdefault(run[0]["task"], {name: [] for name in TRANSPORTS})
        runs[run[0]["transport"]].append(list(run))


def row(transport: str, task: dict[str, Runs]) -> CodecRow:
    """Results of the trainings over one transport, compared with exact.

    Raises: NotMeasured if no training ended, or exact sent nothing.
    """
    runs, exact = (some(task[name], "training that ended") for name in (transport, EXACT))
    name = runs[0][0]["score_name"]
    measured, exact_scores = ([run[0]["score"] for run in of] for of in (runs, exact))
    sign = 1 if name in HIGHER_IS_BETTER else -1
    return CodecRow(
        runs[0][0]["task"],
        transport,
        name,
        measured,
        sign * (mean(exact_scores) - mean(measured)),
        most(exact_scores) - least(exact_scores),
        quotient(_datagrams(runs), _datagrams(exact), "exact sent no datagram"),
    )


def _datagrams(runs: Sequence[Run]) -> int:
    ranks = [rank["books"]["network"] for run in runs for rank in run]
    return sum(counts["sent"] for counts in together(ranks)["classes"].values())


def _print(
    costs: Sequence[CodecCost], rows: Rows[CodecRow], seeds: int, part: float, output: Output
) -> None:
    output.line("CPU seconds per GB of float32, one process, the fastest of some rounds:")
    output.line(
        table.render(
            ("codec", "bytes", "encode (s/GB)", "decode (s/GB)"),
            [(c.codec, f"{c.ratio:.3f}", f"{c.encode:.2f}", f"{c.decode:.2f}") for c in costs],
            left=1,
        )
    )
    output.line()
    output.line(
        f"{HOSTS} hosts on loopback, whose sockets drop {show_fraction(LOSS)} of the incoming "
        f"datagrams (INJECTED), {len(os.sched_getaffinity(0))} cores; seeds 1..{seeds}, "
        f"{show_fraction(part)} of the demo's steps; PowerSGD of rank {POWER_SGD_RANK}"
    )
    output.line(rows.render(HEADER, cells, left=3))
    for line in rows.reasons():
        output.line(line)
    output.line(NOISE)


def cells(one: CodecRow) -> list[object]:
    """Cells of a row of the table."""
    return [
        one.task,
        one.codec,
        one.score_name,
        f"{mean(one.score):.4f}",
        f"{least(one.score):.4f}..{most(one.score):.4f}",
        f"{one.worse:+.4f}",
        f"{one.noise:.4f}",
        f"{one.datagrams:.2f}",
    ]


def _document(
    costs: Sequence[CodecCost],
    rows: Rows[CodecRow],
    checks: Sequence[Check],
    seeds: int,
    part: float,
) -> dict[str, Any]:
    return {
        "command": "bench codecs",
        "version": __version__,
        "hosts": HOSTS,
        "injected_loss": LOSS,
        "seeds": seeds,
        "share_of_steps": part,
        "costs": [asdict(one) for one in costs],
        "rows": rows.document(),
        "checks": [asdict(one) for one in checks],
        "broken": broken(checks),
    }
