"""`dlcpctl bench trace`: cost of recording events, in alternation with and without."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from dlcp_lab.bench.all_reduce import BASE_TIMEOUT, PER_ROUND
from dlcp_lab.bench.places import check_places, document, places, where
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import running
from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.measured import Gap, attempt
from dlcp_lab.report.statistic import Spread, ratios, slowest
from dlcpd.cli.output import Output

OFF: Final = "off"
TURNS: Final = (OFF, "on", "off again")  # as in trace_rank, which imports torch
BLOCK: Final = 5  # operations that are timed together, to reduce noise


def trace(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    check_places(options)
    arguments = {"size": options.size, "pairs": options.pairs, "block": BLOCK, "seed": options.seed}
    timeout = BASE_TIMEOUT + 3 * BLOCK * PER_ROUND * (options.pairs + 1)
    work = launch.Work("dlcp_lab.bench.trace_rank", arguments, timeout)
    with places(options) as plans, running(plans) as hosts:
        results = launch.run(hosts, work, progress=output.progress)
        place = document("bench trace", options, plans)
        output.line(f"all-reduce of {show_size(options.size)}, {where(options, plans, gloo=False)}")
    times = {name: slowest([rank[name] for rank in results]) for name in TURNS}
    events = results[0]["events"]
    output.line(f"{options.pairs} pairs of {BLOCK} operations, {events / BLOCK:.0f} events each")
    for line in lines(times):
        output.line(line)
    output.document({**place, "block": BLOCK, "times": times, "events": events})
    return 0


def lines(times: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """A line for each turn; `times`: seconds of its blocks, pair by pair."""
    for name, samples in times.items():
        line = attempt({"turn": name}, partial(_line, name, samples, times[OFF]))
        yield line.line() if isinstance(line, Gap) else line


def _line(name: str, samples: Sequence[float], off: Sequence[float]) -> str:
    ratio = ratios(samples, off)
    return (
        f"{name:>9}: {Spread.of(samples).p50 / BLOCK * 1e6:.0f} us an operation; over {OFF}: "
        f"median {ratio.p50:.3f}, p10..p90 {ratio.p10:.3f}..{ratio.p90:.3f}"
    )
