"""`dlcpctl bench schedules`: all schedules of a program, and the one that `fl.tune` chooses."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.bench.places import add_places, check_places, document, places, where
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import running
from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.arguments import TORCH, add_seed, add_sizes, add_some
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread, quotient
from dlcpd.cli.grammar import Commands, command, whole
from dlcpd.cli.output import Output

PROGRAMS: Final = ("adam", "layer")  # those of schedules_rank
KERNELS: Final = ("auto", "torch", "inductor", "eager")  # those of the language
HEADER: Final = (
    "program", "size", "candidate", "predicted (ms)", "tuner (ms)", "run (ms)", "p10..p90",
    "run/best", "",
)  # fmt: skip
TIMEOUT: Final = 600.0  # seconds for one case


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A candidate. Seconds of a run, from the call of the last rank on."""

    program: str
    size: int  # bytes of the reduced tensor
    candidate: str
    predicted: float
    tuner: float  # measured by the tuner; 0: not compared
    time: Spread
    over_best: float  # its median / that of the fastest candidate
    chosen: bool
    samples: list[float]


def add_schedules(operations: Commands) -> None:
    """Add `schedules`."""
    text = "Every schedule of a program of computation and communication, and the tuner's choice."
    made = command(operations, "schedules", schedules, text, needs=(TORCH,))
    add_some(made, "--programs", PROGRAMS)
    add_sizes(made, "4M")
    made.add_argument(
        "--inner",
        type=whole(1, 1 << 20),
        default=2048,
        metavar="N",
        help="columns of the first factor of the layer's product (%(default)s)",
    )
    made.add_argument("--kernel", choices=KERNELS, default="eager", help="(%(default)s)")
    for name, number, text in (
        ("--repeat", 3, "runs of a candidate per block"),
        ("--blocks", 2, "blocks"),
    ):
        made.add_argument(
            name, type=whole(1, 1000), default=number, metavar="N", help=f"{text} (%(default)s)"
        )
    add_seed(made)
    add_places(made)


def schedules(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Raises: BadConfig."""
    check_places(options)
    cases = [(name, size) for name in options.programs for size in options.sizes]
    rows = Rows(ScheduleRow)
    with places(options) as plans:
        arguments = {
            "cases": cases,
            "inner": options.inner,
            "kernel": options.kernel,
            "repeat": options.repeat,
            "blocks": options.blocks,
        }
        with running(plans) as hosts:
            work = launch.Work("dlcp_lab.bench.schedules_rank", arguments, TIMEOUT * len(cases), {})
            ranks = launch.run(hosts, work, progress=output.progress)
    for (name, size), of_case in zip(cases, zip(*ranks, strict=True), strict=True):
        rows.extend(rows_of(name, size, of_case))
    output.line(
        f"schedules of programs, {where(options, plans, gloo=False)}; {options.blocks} blocks of "
        f"{options.repeat} runs of each; a run counts from the call of the last rank; medians"
    )
    output.line(rows.render(HEADER, cells, left=3))
    for text in (*rows.reasons(), *choices(rows)):
        output.line(text)
    output.document({**document("bench schedules", options, plans), "rows": rows.document()})
    return 0


def rows_of(name: str, size: int, ranks: Sequence[dict[str, Any]]) -> Rows[ScheduleRow]:
    """The rows of one case, from what its ranks measured."""
    samples = {
        title: [
            min(of_run) for of_run in zip(*(one["seconds"][title] for one in ranks), strict=True)
        ]
        for title in ranks[0]["seconds"]
    }
    best = min(Spread.of(one).p50 for one in samples.values())
    rows = Rows(ScheduleRow)
    for title, predicted, tuner in ranks[0]["rows"]:
        labels = {"program": name, "size": size, "candidate": title}
        made = partial(
            _row, labels, predicted, tuner, samples[title], best, title == ranks[0]["chosen"]
        )
        rows.add(labels, made, (name, show_size(size), title))
    return rows


def _row(  # noqa: PLR0917  # the figures of a row
    labels: dict[str, Any],
    predicted: float,
    tuner: float,
    samples: list[float],
    best: float,
    chosen: bool,
) -> ScheduleRow:
    """Raises: NotMeasured."""
    time = Spread.of(samples)
    ratio = quotient(time.p50, best)
    return ScheduleRow(
        **labels,
        predicted=predicted,
        tuner=tuner,
        time=time,
        over_best=ratio,
        chosen=chosen,
        samples=samples,
    )


def cells(row: ScheduleRow) -> list[object]:
    """Cells of a row of the table."""
    return [
        row.program,
        show_size(row.size),
        row.candidate,
        f"{row.predicted * 1e3:.1f}",
        f"{row.tuner * 1e3:.1f}" if row.tuner else None,
        f"{row.time.p50 * 1e3:.1f}",
        f"{row.time.p10 * 1e3:.1f}..{row.time.p90 * 1e3:.1f}",
        row.over_best,
        "chosen" if row.chosen else "",
    ]


def choices(rows: Sequence[ScheduleRow]) -> Iterator[str]:
    """Each choice, against the fastest candidate."""
    for row in rows:
        if row.chosen:
            yield (
                f"{row.program}, {show_size(row.size)}: the tuner chose {row.candidate}, "
                f"{row.over_best:.2f} x the fastest"
            )
