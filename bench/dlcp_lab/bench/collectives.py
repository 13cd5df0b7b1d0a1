"""`dlcpctl bench collectives`: every collective of torch.distributed over dlcpd and over Gloo.

Sizes and bandwidths are those of nccl-tests: the size is that of the largest buffer on one rank,
and the bus bandwidth is the least that each link carries.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.bench.all_reduce import BASE_TIMEOUT, DLCPD, GLOO, PER_ROUND
from dlcp_lab.bench.places import check_places, document, places, where
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, running
from dlcp_lab.report.amounts import show_call, show_size
from dlcp_lab.report.measured import Rows, figure
from dlcp_lab.report.statistic import Spread, algorithm_bandwidth, ratios, slowest
from dlcpd.cli.output import Output

HALVES: Final = "reduce_scatter+all_gather"  # one after the other: an all-reduce in two calls
COLLECTIVES: Final = (
    "all_reduce", "reduce_scatter", "all_gather", HALVES, "broadcast", "reduce", "gather",
    "scatter", "all_to_all", "send_receive", "barrier",
)  # fmt: skip
# nccl-tests' factors for n ranks: 2(n-1)/n for _TWICE, 1 for _WHOLE, else (n-1)/n.
_TWICE: Final = ("all_reduce", HALVES)
_WHOLE: Final = ("broadcast", "reduce", "send_receive")
HEADER: Final = (
    "collective", "size", "transport", "p50(us)", "p99(us)", "busbw(GB/s)", "#wrong", "gloo/dlcpd",
    "p10..p90", "CPU(ms)",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One transport at one size of one collective. Times in seconds, bandwidths in GB/s."""

    collective: str
    size: int  # bytes; 0 for a barrier
    transport: str
    time: Spread
    bus_bandwidth: float
    wrong: int  # elements, of all ranks
    cpu: float  # seconds per call, of all ranks and daemons
    ratio: Spread | None  # Gloo's time / dlcpd's, pair by pair; above 1 dlcpd is faster
    samples: list[float]


def collectives(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong."""
    check_places(options)
    calls = _calls(options)
    with places(options) as plans:
        rows = _measure(plans, calls, options, output)
    output.line(
        f"collectives of torch.distributed, {where(options, plans, gloo=True)}; float32, ordinary "
        f"tensors; {options.repeat} rounds, slowest rank counts"
    )
    output.line(rows.render(HEADER, cells, left=1))
    for line in (*rows.reasons(), *verdicts(rows)):
        output.line(line)
    output.document(_document(options, plans, rows))
    return 1 if any(row.wrong and row.transport == DLCPD for row in rows) else 0


def _calls(options: argparse.Namespace) -> list[tuple[str, int]]:
    return [
        (name, size)
        for name in options.collectives
        for size in (options.sizes if name != "barrier" else [0])
    ]


def _measure(
    plans: Sequence[HostPlan],
    calls: Sequence[tuple[str, int]],
    options: argparse.Namespace,
    output: Output,
) -> Rows[CollectiveRow]:
    arguments = {
        "calls": calls,
        "repeat": options.repeat,
        "warmup": options.warmup,
        "seed": options.seed,
    }
    timeout = BASE_TIMEOUT + PER_ROUND * (options.repeat + options.warmup) * len(calls)
    work = launch.Work("dlcp_lab.bench.collectives_rank", arguments, timeout)
    with running(plans) as hosts:
        results = launch.run(hosts, work, progress=output.progress)
    rows = Rows(CollectiveRow)
    for number, (name, size) in enumerate(calls):
        rows.extend(rows_of(name, size, [rank[number] for rank in results]))
    return rows


def rows_of(collective: str, size: int, ranks: Sequence[dict[str, Any]]) -> Rows[CollectiveRow]:
    """The rows of one call, from what each rank measured."""
    rows = Rows(CollectiveRow)
    times = {name: slowest([rank[name]["times"] for rank in ranks]) for name in ranks[0]}
    for name in times:
        rows.add(
            {"collective": collective, "size": size, "transport": name},
            partial(_row, collective, size, name, times, [rank[name] for rank in ranks]),
            (collective, show_size(size) if size else None, name),
        )
    return rows


def _row(
    collective: str,
    size: int,
    name: str,
    times: Mapping[str, Sequence[float]],
    ranks: Sequence[dict[str, Any]],
) -> CollectiveRow:
    """The row of one transport; `ranks`: its measurements. Raises: NotMeasured."""
    samples = times[name]
    time = Spread.of(samples)
    return CollectiveRow(
        collective,
        size,
        name,
        time,
        algorithm_bandwidth(size, time.p50) * factor(collective, len(ranks)),
        sum(rank["wrong"] for rank in ranks),
        sum(rank["cpu"] for rank in ranks),
        figure(lambda: ratios(times[GLOO], samples)) if name == DLCPD else None,
        list(samples),
    )


def factor(collective: str, ranks: int) -> float:
    """Bus bandwidth / algorithm bandwidth."""
    if collective in _WHOLE:
        return 1.0
    return (2 if collective in _TWICE else 1) * (ranks - 1) / ranks


def cells(row: CollectiveRow) -> list[object]:
    """Cells of a row of the table."""
    ratio = row.ratio
    return [
        row.collective,
        show_size(row.size) if row.size else None,
        row.transport,
        f"{row.time.p50 * 1e6:.0f}",
        f"{row.time.p99 * 1e6:.0f}",
        row.bus_bandwidth or None,
        row.wrong,
        ratio.p50 if ratio else None,
        f"{ratio.p10:.2f}..{ratio.p90:.2f}" if ratio else None,
        f"{row.cpu * 1e3:.2f}",
    ]


def verdicts(rows: Sequence[CollectiveRow]) -> Iterator[str]:
    """Collectives in which Gloo is faster, what the halves of an all-reduce cost beside it, and
    wrong results."""
    slower = [row for row in rows if row.ratio and row.ratio.p50 < 1.0]
    if slower:
        names = ", ".join(show_call(row.collective, row.size) for row in slower)
        yield f"Gloo is faster in: {names}"
    cpu = {(row.collective, row.size): row.cpu for row in rows if row.transport == DLCPD}
    for (name, size), halves in cpu.items():
        if name == HALVES and (whole := cpu.get(("all_reduce", size))):
            yield (
                f"{show_size(size)}: {HALVES} take {halves / whole:.2f} times the CPU time of an "
                f"all_reduce over dlcpd"
            )
    for row in rows:
        if row.wrong:
            yield (
                f"WRONG RESULT of {row.transport}: {row.collective} of {show_size(row.size)}, "
                f"{row.wrong} elements"
            )


def _document(
    options: argparse.Namespace, plans: Sequence[HostPlan], rows: Rows[CollectiveRow]
) -> dict[str, Any]:
    return {
        **document("bench collectives", options, plans),
        "repeat": options.repeat,
        "warmup": options.warmup,
        "seed": options.seed,
        "rows": rows.document(),
    }
