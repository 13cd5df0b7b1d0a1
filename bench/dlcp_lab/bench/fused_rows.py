"""Rows of the table of `bench fused`, and what they show. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.checks import Check, verdict
from dlcp_lab.report.measured import Rows, figure
from dlcp_lab.report.statistic import Spread, median, quotient, slowest
from dlcp_lab.training.learning import distinct

HEADER: Final = (
    "size", "way", "step (ms)", "p10..p90", "CPU (ms)", "gloo/this", "zero/this", "hook/this",
    "cross-step/this", "CPU/gloo's", "exposed (ms)", "bound/this", "state (MB)",
)  # fmt: skip
REFERENCES: Final = ("gloo", "zero", "hook", "cross-step")
FUSED: Final = ("fused", "eager")
WORTH: Final = 1.02  # a ratio below is no gain

Ranks = Sequence[dict[str, Any]]  # of one block, see dlcp_lab.bench.fused_rank
Blocks = Sequence[Ranks]


@dataclass(frozen=True, slots=True)
class FusedRow:
    """One way at one size. Seconds; a ratio of medians above 1: this way is faster."""

    size: int  # bytes of parameters
    way: str
    time: Spread  # of a step
    cpu: float  # per step, of all processes: the median of the blocks
    over: dict[str, float]  # by reference
    cpu_ratio: float | None  # this way's CPU / Gloo's
    exposed: float  # of the median step: what is not computation
    of_bound: float | None  # max(computation, communication) / the median step
    state: int  # bytes of optimizer state, the most of a rank
    samples: list[float]


def rows_of(
    size: int, found: Mapping[str, Blocks], *, compute: float, line: float
) -> Rows[FusedRow]:
    """The rows of one size. `compute`, `line`: seconds per step of computation, and of the least
    that the gradients keep a line busy (0: no line)."""
    rows = Rows(FusedRow)
    for way in found:
        labels = {"size": size, "way": way}
        rows.add(labels, partial(_row, size, way, found, compute, line), (show_size(size), way))
    return rows


def _row(size: int, way: str, found: Mapping[str, Blocks], compute: float, line: float) -> FusedRow:
    """Raises: NotMeasured."""
    samples = _samples(found[way])
    time = Spread.of(samples)
    over = {
        name: quotient(median(_samples(found[name])), time.p50)
        for name in REFERENCES
        if name in found and name != way
    }
    cpu, bound = _cpu(found[way]), max(compute, line)
    return FusedRow(
        size,
        way,
        time,
        cpu,
        over,
        figure(lambda: quotient(cpu, _cpu(found["gloo"]))) if "gloo" in found else None,
        time.p50 - compute,
        quotient(bound, time.p50) if line else None,
        max(rank["state"] for rank in found[way][0]),
        samples,
    )


def _samples(blocks: Blocks) -> list[float]:
    return [one for ranks in blocks for one in slowest([rank["times"] for rank in ranks])]


def _cpu(blocks: Blocks) -> float:
    return median([sum(rank["cpu"] for rank in ranks) for ranks in blocks])


def cells(row: FusedRow) -> list[object]:
    """Cells of a row of the table."""
    time = row.time
    return [
        show_size(row.size),
        row.way,
        f"{time.p50 * 1e3:.0f}",
        f"{time.p10 * 1e3:.0f}..{time.p90 * 1e3:.0f}",
        f"{row.cpu * 1e3:.0f}",
        *(row.over.get(name) for name in REFERENCES),
        row.cpu_ratio,
        f"{row.exposed * 1e3:.0f}",
        row.of_bound,
        f"{row.state / 1e6:.1f}",
    ]


def honesty(rows: Sequence[FusedRow]) -> Iterator[str]:
    """Cases in which the fused update gains nothing (P10)."""
    for row in rows:
        for name, gain in row.over.items() if row.way in FUSED else ():
            if gain < WORTH:
                yield f"no gain of {row.way} at {show_size(row.size)} over {name}: {gain:.2f}"


def judge(size: int, found: Mapping[str, Blocks]) -> Check:
    """Whether ranks hold the same weights, whichever way made them."""
    apart = [
        f"{way}: {len(different)} sets of weights"
        for way, blocks in found.items()
        for ranks in blocks
        if len(different := distinct([rank["digest"] for rank in ranks])) > 1
    ]
    what = f"{show_size(size)}: ranks hold the same weights"
    return Check("P2", what, *verdict(apart, "bit for bit"))
