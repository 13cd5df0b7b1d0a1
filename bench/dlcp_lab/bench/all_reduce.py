"""`dlcpctl bench all-reduce`: dlcpd against Gloo, in alternation in the same processes."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.bench.account import Cost, account, lines
from dlcp_lab.bench.places import check_places, document, places, where
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, network_table, running
from dlcp_lab.report.amounts import show_fraction, show_size
from dlcp_lab.report.measured import Gap, Rows, attempt, figure
from dlcp_lab.report.statistic import Spread, algorithm_bandwidth, bus_bandwidth, ratios, slowest
from dlcpd.cli.output import Output
from dlcpd.contract.codec import check_takes, parsed
from dlcpd.contract.errors import BadConfig, BadPolicy

DLCPD: Final = "dlcpd"
GLOO: Final = "gloo"
PER_ROUND: Final = 10.0  # seconds that a round may take at most before the run is aborted
BASE_TIMEOUT: Final = 120.0  # seconds for starting, and for making the reference
ELEMENT_SIZES: Final = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8,
}  # fmt: skip
RETRANSMISSION_MATTERS: Final = (
    0.005  # share of segments; below it retransmissions do not explain lost time
)
HEADER: Final = (
    "size", "count", "type", "redop", "transport", "time(us)", "p10..p90", "p99",
    "algbw(GB/s)", "busbw(GB/s)", "#wrong", "gloo/dlcpd", "p10..p90",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AllReduceRow:
    """One transport at one size. Times in seconds, bandwidths in GB/s."""

    size: int
    count: int
    transport: str
    time: Spread
    algorithm_bandwidth: float
    bus_bandwidth: float
    wrong: int
    ratio: Spread | None  # Gloo's time / dlcpd's, pair by pair; above 1 dlcpd is faster
    segments: dict[str, int]  # sent, retransmitted, waived, reapplied; all ranks together
    datagram: dict[str, int]  # segment_size and headers, bytes; 0 for Gloo
    samples: list[float]


def bench(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong."""
    check(options)
    with places(options) as plans:
        rows = _measure(plans, options, output)
        found = _account(plans, options, output)
    output.line(heading(options, plans))
    output.line(rows.render(HEADER, lambda row: cells(row, options), left=0))
    costs = () if isinstance(found, Gap) else found
    account_said = [found.line()] if isinstance(found, Gap) else lines(found)
    for line in (*rows.reasons(), *overhead(rows), *verdicts(rows, options), *account_said):
        output.line(line)
    output.document(_document(options, plans, rows) | {"account": [asdict(c) for c in costs]})
    return 1 if any(row.wrong and row.transport == DLCPD for row in rows) else 0


def _measure(
    plans: Sequence[HostPlan], options: argparse.Namespace, output: Output
) -> Rows[AllReduceRow]:
    with running(plans) as hosts:
        work = launch.Work("dlcp_lab.bench.all_reduce_rank", _arguments(options), _timeout(options))
        results = launch.run(hosts, work, progress=output.progress)
    rows = Rows(AllReduceRow)
    for number, size in enumerate(options.sizes):
        rows.extend(rows_of(size, [rank[number] for rank in results], options))
    return rows


def _account(
    plans: Sequence[HostPlan], options: argparse.Namespace, output: Output
) -> list[Cost] | Gap:
    if not options.account:
        return []
    arguments, timeout = _arguments(options), _timeout(options)
    return attempt({"": "account"}, lambda: account(plans, arguments, timeout, output))


def check(options: argparse.Namespace) -> None:
    """Refuse options that dlcpd or its client would refuse later.

    Raises: BadConfig.
    """
    if options.result_only and not options.arena:
        raise BadConfig("--result-only needs --arena: the tensor must be in the arena")
    if options.mode == "bounded" and options.op not in ("sum", "avg"):
        raise BadConfig(f"--op {options.op} cannot be bounded; use sum or avg, or --mode exact")
    if options.op == "avg" and options.dtype in ("int32", "int64"):
        raise BadConfig(f"--op avg of {options.dtype} rounds; use --op sum, or a float --dtype")
    if options.codec:
        _check_codec(options)
    check_places(options)


def _check_codec(options: argparse.Namespace) -> None:
    try:
        check_takes(parsed(options.codec), options.dtype, options.op)
    except BadPolicy as exc:
        raise BadConfig(f"--codec: {exc}") from exc


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    names = (
        "sizes",
        "dtype",
        "op",
        "mode",
        "max_loss",
        "codec",
        "arena",
        "result_only",
        "against",
        "back_to_back",
        "repeat",
        "warmup",
        "seed",
    )
    return {name: getattr(options, name) for name in names}


def _timeout(options: argparse.Namespace) -> float:
    rounds = options.repeat + options.warmup
    return BASE_TIMEOUT + PER_ROUND * float(rounds * len(options.sizes))


def rows_of(
    size: int, ranks: Sequence[dict[str, Any]], options: argparse.Namespace
) -> Rows[AllReduceRow]:
    """The rows of one size, from what each rank measured."""
    count, rows = max(1, size // ELEMENT_SIZES[options.dtype]), Rows(AllReduceRow)
    times = {name: slowest([rank[name]["times"] for rank in ranks]) for name in ranks[0]}
    for name in times:
        rows.add(
            {"size": size, "count": count, "transport": name},
            partial(_row, size, name, times, [rank[name] for rank in ranks], options),
            (show_size(size), count, options.dtype, options.op, name),
        )
    return rows


def _row(
    size: int,
    name: str,
    times: Mapping[str, Sequence[float]],
    ranks: Sequence[dict[str, Any]],
    options: argparse.Namespace,
) -> AllReduceRow:
    """The row of one transport; `ranks`: its series. Raises: NotMeasured."""
    samples = times[name]
    time = Spread.of(samples)
    segments = {
        key: sum(rank[key] for rank in ranks)
        for key in ("sent", "retransmitted", "waived", "reapplied")
    }
    compared = name == DLCPD and GLOO in times
    return AllReduceRow(
        size,
        max(1, size // ELEMENT_SIZES[options.dtype]),
        name,
        time,
        algorithm_bandwidth(size, time.p50),
        bus_bandwidth(size, time.p50, len(ranks)),
        _wrong([rank["wrong"] for rank in ranks], segments, options),
        figure(lambda: ratios(times[GLOO], samples)) if compared else None,
        segments,
        {key: min(rank[key] for rank in ranks) for key in ("segment_size", "headers")},
        list(samples),
    )


def _wrong(counts: Sequence[int], segments: dict[str, int], options: argparse.Namespace) -> int:
    """Wrong elements of all ranks; in bounded mode only those that the ledger does not explain."""
    if options.mode == "exact":
        return sum(counts)
    # Each waived segment changes its elements on every rank, and again when it is reapplied.
    segment_size = network_table(options.set).largest_segment
    touched = (segments["waived"] + segments["reapplied"]) * len(counts)
    return max(0, sum(counts) - touched * (segment_size // ELEMENT_SIZES[options.dtype]))


def heading(options: argparse.Namespace, plans: Sequence[HostPlan]) -> str:
    """Heading: the measurement in words."""
    mode = options.mode
    if mode == "bounded":
        mode += f" ({show_fraction(options.max_loss)})"
    if options.codec:
        mode += f", codec {options.codec}"
    memory = "arena tensors" if options.arena else "ordinary tensors, copied in and out"
    return (
        f"all-reduce, {where(options, plans, gloo=options.against == GLOO)}; {mode}, {memory}; "
        f"{options.repeat} rounds{', back to back' if options.back_to_back else ''}, "
        f"slowest rank counts, medians"
    )


def cells(row: AllReduceRow, options: argparse.Namespace) -> list[object]:
    """Cells of a row of the table."""
    time = row.time
    spread = f"{time.p10 * 1e6:.0f}..{time.p90 * 1e6:.0f}"
    ratio = row.ratio
    return [
        show_size(row.size),
        row.count,
        options.dtype,
        options.op,
        row.transport,
        f"{time.p50 * 1e6:.0f}",
        spread,
        f"{time.p99 * 1e6:.0f}",
        row.algorithm_bandwidth,
        row.bus_bandwidth,
        row.wrong,
        ratio.p50 if ratio else None,
        f"{ratio.p10:.2f}..{ratio.p90:.2f}" if ratio else None,
    ]


def overhead(rows: Sequence[AllReduceRow]) -> Iterator[str]:
    """Segment sizes, and the share of headers in the bytes."""
    for segment, headers in dict.fromkeys(
        (row.datagram["segment_size"], row.datagram["headers"]) for row in rows
    ):
        if segment:
            share = headers / (headers + segment)
            yield f"segments of {segment} B: {show_fraction(share)} of the bytes are headers"


def verdicts(rows: Sequence[AllReduceRow], options: argparse.Namespace) -> Iterator[str]:
    """Sizes without a gain, with the reason as far as the numbers show it (P10); wrong results."""
    rows_of_dlcpd = [row for row in rows if row.transport == DLCPD]
    for row in rows_of_dlcpd:
        if row.ratio and row.ratio.p50 < 1.0:
            yield (
                f"no gain at {show_size(row.size)}: Gloo takes {row.ratio.p50:.2f} of dlcpd's time "
                f"here, because {_because(row, options)}"
            )
    if options.mode == "bounded" and not any(row.segments["waived"] for row in rows_of_dlcpd):
        yield "no gain from bounded loss here, because no segment was waived"
    for row in rows_of_dlcpd:
        if row.wrong:
            yield f"WRONG RESULT at {show_size(row.size)}: {row.wrong} elements (promise P1)"


def _because(row: AllReduceRow, options: argparse.Namespace) -> str:
    share = row.segments["retransmitted"] / max(row.segments["sent"], 1)
    if share > RETRANSMISSION_MATTERS:
        return f"{show_fraction(share)} of the segments were retransmitted"
    if not options.switch and not options.netns:
        return "loopback has no slow tail that dlcpd could cut: copies and wake-ups limit both"
    return "the network lost hardly any datagram, so there was no slow tail to cut"


def _document(
    options: argparse.Namespace, plans: Sequence[HostPlan], rows: Rows[AllReduceRow]
) -> dict[str, Any]:
    return {
        **document("bench all-reduce", options, plans),
        **_arguments(options),
        "rows": rows.document(),
    }
