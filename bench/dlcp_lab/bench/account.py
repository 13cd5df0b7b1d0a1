"""`dlcpctl bench all-reduce --account`: CPU time, switches and calls per operation and host."""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, running
from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.statistic import mean
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.io.config import COUNT_CALLS

HEADER: Final = (
    "size", "transport", "process", "user(ms)", "system(ms)", "s/GB", "waits", "displaced",
    "system calls", "python calls",
)  # fmt: skip
COUNTED: Final = ("user", "system", "waited", "displaced", "system_calls")


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost per operation and host of one kind of process: means over operations and hosts."""

    size: int
    transport: str
    process: str
    user: float  # CPU seconds
    system: float
    waited: float  # voluntary context switches
    displaced: float  # involuntary context switches
    system_calls: float | None  # None: this machine could not count them
    python_calls: float | None  # Python and C functions; None: not counted in this process
    effort: dict[str, float]  # of the engine: datagrams, and its calls by kind

    @property
    def per_gigabyte(self) -> float:
        """CPU seconds per 10**9 bytes of the tensor."""
        return (self.user + self.system) / self.size * 1e9


def account(
    plans: Sequence[HostPlan], arguments: dict[str, Any], timeout: float, output: Output
) -> list[Cost]:
    """Run the operations twice more: once for their cost, once to count Python calls, which slows
    everything."""
    plain = _run(plans, arguments | {"count_calls": False}, timeout, output)
    with _counting_calls():
        counted = _run(plans, arguments | {"count_calls": True}, timeout, output)
    return list(costs(arguments["sizes"], arguments["repeat"], plain, counted))


def _run(
    plans: Sequence[HostPlan], arguments: dict[str, Any], timeout: float, output: Output
) -> list[Any]:
    with running(plans) as hosts:
        work = launch.Work("dlcp_lab.bench.account_rank", arguments, timeout)
        return launch.run(hosts, work, progress=output.progress)


@contextmanager
def _counting_calls() -> Iterator[None]:
    """Make engines that start inside the context count their calls."""
    os.environ[COUNT_CALLS] = "1"
    try:
        yield
    finally:
        del os.environ[COUNT_CALLS]


def costs(
    sizes: Sequence[int], operations: int, plain: Sequence[Any], counted: Sequence[Any]
) -> Iterator[Cost]:
    """Costs by size, transport and process; `plain` and `counted` are [rank][size][transport]."""
    for number, size in enumerate(sizes):
        for transport in plain[0][number]:
            hosts = [rank[number][transport] for rank in plain]
            calls = [rank[number][transport] for rank in counted]
            for process in hosts[0]["processes"]:
                seen = [host["processes"][process] for host in hosts]
                made = [_calls(host, process) for host in calls]
                effort = [host["effort"] for host in hosts] if process == "engine" else []
                yield Cost(
                    size=size,
                    transport=transport,
                    process=process,
                    **{name: _mean([one[name] for one in seen], operations) for name in COUNTED},
                    python_calls=_mean(made, operations),
                    effort={
                        key: mean([each.get(key, 0) for each in effort]) / operations
                        for key in sorted({key for each in effort for key in each})
                    },
                )


def _calls(host: dict[str, Any], process: str) -> int | None:
    if process == "trainer":
        return int(host["python_calls"])
    return int(host["effort"].get("python_calls", 0)) if process == "engine" else None


def _mean(values: Sequence[float | None], operations: int) -> Any:
    """Mean per operation; None if a host has no value."""
    known = [value for value in values if value is not None]
    return mean(known) / operations if len(known) == len(values) else None


def lines(found: Sequence[Cost]) -> Iterator[str]:
    """Text: a table by process, and the counts of the engines by size."""
    if not found:
        return
    busy = [cost for cost in found if cost.user + cost.system > 0 or cost.waited >= 1]
    yield "per operation and host, operations one after the other:"
    yield table.render(HEADER, [_cells(cost) for cost in busy], left=0)
    for cost in found:
        if cost.effort and cost.transport == "dlcpd":
            counts = ", ".join(
                f"{key} {count:.2f}" for key, count in cost.effort.items() if key != "python_calls"
            )
            yield f"engine, {show_size(cost.size)}: {counts}"


def _cells(cost: Cost) -> list[object]:
    whole = [cost.waited, cost.displaced, cost.system_calls, cost.python_calls]
    return [
        show_size(cost.size),
        cost.transport,
        cost.process,
        cost.user * 1e3,
        cost.system * 1e3,
        cost.per_gigabyte,
        *(None if count is None else f"{count:.1f}" for count in whole),
    ]


def add_account(made: argparse.ArgumentParser) -> None:
    """Add the option `--account`."""
    made.add_argument(
        "--account",
        action="store_true",
        help=(
            "also count CPU time, context switches, system calls (needs perf and root) and "
            "datagrams"
        ),
    )
