"""Rows of the table of `bench spmd`, and what they show. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.report.checks import Check, verdict
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread, mean, median, quotient, slowest
from dlcp_lab.scenarios.claims import Claim, Findings

HEADER: Final = (
    "case", "backend", "way", "step (ms)", "p10..p90", "CPU (ms)", "spmd/this", "CPU spmd/this",
    "waits (ms)", "saved (MB)", "collectives", "reductions",
)  # fmt: skip
SPMD: Final = "spmd"
ALONE: Final = "alone"  # each rank does the work of all
MOST_CPU: Final = {"dtensor": 1.0, "ddp": 1.05, "fsdp2": 1.15}  # spmd / by this way
MOST_REDUCTIONS: Final = 4
LEAST_EFFICIENCY: Final = 0.85  # CPU of one process / of all ranks
MOST_SAVED: Final = 0.55  # bytes of activations on 2 ranks / of one process
LEAST_GAIN: Final = 5.0  # gathering / spmd, at 200 Mb/s
CLOSE: Final = 1e-3  # of losses: sums of float32 in another order

Block = Sequence[Mapping[str, Any]]  # of all ranks, see dlcp_lab.bench.spmd_rank
Key = tuple[str, str, str]  # case, backend, way


@dataclass(frozen=True, slots=True)
class SpmdRow:
    """One way of one case over one backend. Seconds; ratios of medians, below 1: spmd is faster."""

    case: str
    backend: str
    way: str
    time: Spread  # of a step, on the slowest rank
    cpu: float  # per step, of all processes that share it: the median of the blocks
    over: float  # the time of spmd / that of this way
    cpu_over: float
    waits: float  # of a step: the least time in which a rank does not compute
    saved: int  # bytes for the backward pass on a rank, at most
    collectives: int | None  # of a divided graph
    reductions: int | None  # operations that share its sums of gradients
    loss: float  # of all ranks, after all steps
    samples: list[float]


def by_key(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> dict[Key, list[Block]]:
    """The blocks of each way, from what the ranks measured."""
    found: dict[Key, list[Block]] = {}
    for block in zip(*ranks, strict=True):
        key = block[0]["case"], block[0]["backend"], block[0]["way"]
        found.setdefault(key, []).append(block)
    return found


def rows_of(found: Mapping[Key, Sequence[Block]]) -> Rows[SpmdRow]:
    """All rows."""
    rows = Rows(SpmdRow)
    for case, backend, way in found:
        labels = {"case": case, "backend": backend, "way": way}
        rows.add(labels, partial(_row, (case, backend, way), found))
    return rows


def _row(key: Key, found: Mapping[Key, Sequence[Block]]) -> SpmdRow:
    """Raises: NotMeasured."""
    case, backend, way = key
    blocks, ours = found[key], found[case, backend, SPMD]
    samples, time = _samples(blocks), Spread.of(_samples(blocks))
    last = blocks[-1]
    return SpmdRow(
        *key,
        time,
        _cpu(way, blocks),
        quotient(median(_samples(ours)), time.p50),
        quotient(_cpu(SPMD, ours), _cpu(way, blocks)),
        time.p50 - median([max(rank["work"] for rank in block) for block in blocks]),
        max(rank["saved"] for rank in last),
        last[0]["collectives"],
        last[0]["reductions"],
        mean([rank["loss"] for rank in last]),
        samples,
    )


def _samples(blocks: Sequence[Block]) -> list[float]:
    return [one for block in blocks for one in slowest([rank["times"] for rank in block])]


def _cpu(way: str, blocks: Sequence[Block]) -> float:
    """Per step. Where each rank does all the work, that of one is the mean."""
    each = [[rank["cpu"] for rank in block] for block in blocks]
    return median([mean(one) if way == ALONE else sum(one) for one in each])


def cells(row: SpmdRow) -> list[object]:
    """Cells of a row of the table."""
    time = row.time
    return [
        row.case,
        row.backend,
        row.way,
        f"{time.p50 * 1e3:.1f}",
        f"{time.p10 * 1e3:.1f}..{time.p90 * 1e3:.1f}",
        f"{row.cpu * 1e3:.1f}",
        None if row.way == SPMD else row.over,
        None if row.way == SPMD else row.cpu_over,
        f"{row.waits * 1e3:.1f}",
        f"{row.saved / 1e6:.1f}",
        row.collectives,
        row.reductions,
    ]


def claims(rows: Sequence[SpmdRow], *, emulated: bool) -> list[Claim]:
    """The figures asked of a divided program. CPU time is judged, not the time of a step: that is
    noise where other programs or daemons share the cores of the ranks. On an emulated network (see
    `bench spmd --switch`) the network decides it."""
    found = Findings()
    ours = {(row.case, row.backend): row for row in rows if row.way == SPMD}
    for row in rows:
        spmd, where = ours[row.case, row.backend], f"{row.case} over {row.backend}"
        limit = MOST_CPU.get(row.way)
        if limit is not None:
            found.claim(f"{where}: CPU of spmd / {row.way}", row.cpu_over, limit)
        if row.way == "ddp":
            found.claim(f"{where}: reductions", spmd.reductions or 0, MOST_REDUCTIONS)
        if row.way == ALONE:
            efficiency = partial(quotient, row.cpu, spmd.cpu)
            found.claim(f"{where}: CPU efficiency", efficiency, LEAST_EFFICIENCY, at_most=False)
            saved = partial(quotient, spmd.saved, row.saved)
            found.claim(f"{where}: activations of spmd / {row.way}", saved, MOST_SAVED)
        if row.way == "gather" and emulated:
            gain = partial(quotient, row.time.p50, spmd.time.p50)
            found.claim(f"{where}: time of {row.way} / spmd", gain, LEAST_GAIN, at_most=False)
    return found.claims


def honesty(rows: Sequence[SpmdRow]) -> Iterator[str]:
    """Cases in which the divided program gains nothing (P10)."""
    for row in rows:
        if row.way not in (SPMD, ALONE) and row.over >= 1:
            yield (
                f"no gain of spmd in case {row.case} over {row.backend}: {row.over:.2f} of the "
                f"time of {row.way}"
            )


def judge(rows: Sequence[SpmdRow]) -> Check:
    """Whether all ways of a case have learned the same."""
    first: dict[str, SpmdRow] = {}
    apart = [
        f"{row.case}: loss {row.loss:.5f} of {row.way} over {row.backend}, {other.loss:.5f} of "
        f"{other.way} over {other.backend}"
        for row in rows
        if abs(row.loss - (other := first.setdefault(row.case, row)).loss) > CLOSE
    ]
    return Check("P2", "all ways of a case have the same loss", *verdict(apart, f"to {CLOSE:g}"))
