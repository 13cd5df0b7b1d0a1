"""`dlcpctl bench simulate`: operations of up to 144 hosts in virtual time, against their limit.

No datagram leaves this process. CPU time is that of the simulation, and depends on the machine;
all other figures depend on the arguments alone.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from dlcp_lab.bench.sweep import MAX_HOSTS, check_whole, wire_rate
from dlcp_lab.report.amounts import duration, show_size, size
from dlcp_lab.report.arguments import add_seed, add_sizes
from dlcp_lab.report.measured import Rows, wrong_results
from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.cell import SEGMENT
from dlcp_lab.simulation.operation import (
    AROUND,
    SimHardware,
    SimOperation,
    all_reduce,
    incast,
    network_of,
)
from dlcpd import __version__
from dlcpd.cli.grammar import Commands, command, whole
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig

MOST_MEMORY: Final = 8 << 30  # bytes of all tensors; a process takes up to three times that
MOST_SECONDS: Final = 1.0  # of a round trip or a wake-up
HEADER: Final = (
    "operation", "size", "ranks", "time(ms)", "ended(ms)", "limit(ms)", "share of limit", "drops",
    "events", "datagrams", "CPU(s)", "events/CPU s", "#wrong",
)  # fmt: skip
LIMIT: Final = (
    "limit: bytes of the slowest port / rate. The bytes are the data that the busiest host sends, "
    f"or receives: each segment of {SEGMENT} bytes once, with {AROUND} bytes of headers and "
    "framing; no control, no retransmission, no round trip",
    "time: until each rank that gets a result has it; ended: until each rank also knows that its "
    "data have arrived",
)


def add_simulate(operations: Commands) -> None:
    """Add `simulate`."""
    text = "All-reduces, and an incast, of many hosts in virtual time: share of the wires' limit."
    made = command(operations, "simulate", simulate, text)
    made.add_argument(
        "--hosts",
        type=whole(2, MAX_HOSTS),
        default=16,
        metavar="N",
        help="hosts at one switch (%(default)s)",
    )
    add_sizes(made, "4M")
    made.add_argument("--rate", default="100gbit", help="rate of each wire (%(default)s)")
    made.add_argument(
        "--operations",
        type=whole(1, 1000),
        default=3,
        metavar="K",
        help="operations of each kind and size (%(default)s)",
    )
    made.add_argument(
        "--incast",
        type=whole(0, MAX_HOSTS - 1),
        default=0,
        metavar="M",
        help="hosts that then send their tensors to one host; 0: no incast (%(default)s)",
    )
    for option, default, text in (
        ("--round-trip", "10us", "time without data"),
        ("--wake-up", "5us", "time from a first arrival to the wake-up of an engine"),
    ):
        made.add_argument(option, type=duration, default=default, help=f"{text} (%(default)s)")
    made.add_argument(
        "--buffer",
        type=size,
        default="1M",
        help="bytes that a port of the switch holds (%(default)s)",
    )
    add_seed(made)


def simulate(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong. Raises: BadConfig."""
    hardware = _checked(options)
    rows = Rows(SimOperation)
    for each in options.sizes:
        network = network_of(hardware)
        for number, (name, run) in enumerate(_operations(options, network, each), 1):
            output.progress(f"{hardware.hosts} hosts, {show_size(each)}: {name}, number {number}")
            labels = {"collective": name, "size": each}
            rows.add(labels, partial(run, number), (name, show_size(each)))
    output.line(_heading(options))
    output.line(rows.render(HEADER, _cells, left=1))
    for line in (*LIMIT, *rows.reasons(), *wrong_results(rows, lambda row: row.collective)):
        output.line(line)
    output.document(
        {
            "command": "bench simulate",
            "version": __version__,
            "conditions": _heading(options),
            "hosts": hardware.hosts,
            "seed": hardware.seed,
            "rows": rows.document(),
        }
    )
    return 1 if any(row.wrong for row in rows) else 0


def _checked(options: argparse.Namespace) -> SimHardware:
    """Raises: BadConfig."""
    for each in options.sizes:
        check_whole(each)
        if (total := each * options.hosts) > MOST_MEMORY:
            raise BadConfig(
                f"--sizes: {options.hosts} hosts with {show_size(each)} hold {total / 2**30:.1f} "
                f"GiB: at most {MOST_MEMORY >> 30}"
            )
    if options.incast >= options.hosts:
        raise BadConfig(
            f"--incast: {options.incast} senders and a receiver are more than {options.hosts} hosts"
        )
    for option, value in (("--round-trip", options.round_trip), ("--wake-up", options.wake_up)):
        if value > MOST_SECONDS:
            raise BadConfig(f"{option}: {value:g} s is out of range: at most {MOST_SECONDS:g} s")
    return SimHardware(
        options.hosts,
        wire_rate(options.rate),
        options.round_trip,
        options.wake_up,
        options.buffer,
        options.seed,
    )


def _operations(
    options: argparse.Namespace, network: BurstNetwork, tensor: int
) -> Iterator[tuple[str, Callable[[int], SimOperation]]]:
    """The name of each operation, and its function of its number."""
    for _ in range(options.operations):
        yield "all_reduce", partial(all_reduce, network, tensor)
    for _ in range(options.operations if options.incast else 0):
        yield "reduce", partial(incast, network, tensor, options.incast)


def _heading(options: argparse.Namespace) -> str:
    return (
        f"{options.hosts} simulated hosts at one switch, {options.rate} per wire, "
        f"{show_size(options.buffer)} per port, round trip {options.round_trip * 1e6:g} us, "
        f"wake-up after {options.wake_up * 1e6:g} us, virtual time; sums of float32 that differ "
        f"in each operation, seed {options.seed}"
    )


def _cells(row: SimOperation) -> list[object]:
    return [
        row.collective if row.collective == "all_reduce" else f"{row.ranks - 1} to 1",
        show_size(row.size),
        row.ranks,
        f"{row.time * 1e3:.3f}",
        f"{row.ended * 1e3:.3f}",
        f"{row.limit * 1e3:.3f}",
        f"{row.share:.3f}",
        row.dropped,
        row.events,
        row.datagrams,
        f"{row.cpu:.2f}",
        f"{row.events_per_second:.0f}",
        row.wrong,
    ]
