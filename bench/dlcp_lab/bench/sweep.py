"""`dlcpctl bench sweep`: the core in virtual time, exact and bounded, and Gloo's ring over TCP,
under many conditions.

No datagram leaves this process and no clock is read: loads of the machine do not matter.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Final

from dlcp_lab.bench.sweep_map import EITHER, TCP, UNCLEAR, comma_separated, drawn
from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.report.amounts import bound, injected, show_fraction, show_size
from dlcp_lab.report.arguments import add_list, add_seed, add_sizes
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread, quotient
from dlcp_lab.simulation.cell import SimCondition, all_reduces
from dlcp_lab.simulation.tcp.ring import tcp_all_reduces
from dlcpd import __version__
from dlcpd.cli.grammar import Commands, command, whole
from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import MAX_LOSS_LIMIT

MAX_HOSTS: Final = 144
MAX_ROUND_TRIP: Final = 1000.0  # milliseconds
LEAST_BOUND: Final = 0.01
MAX_RATE: Final = 400e9
HEADER: Final = (
    "hosts", "size", "round trip(ms)", "loss", "burst", "bound", "exact p50(ms)", "p90", "p99",
    "bounded p50(ms)", "p90", "p99", "bbr p50(ms)", "cubic p50(ms)",
    "exact/bounded", "p99", "faster", "TCP/ours", "fastest", "#wrong",
)  # fmt: skip
ENOUGH: Final = 3  # operations of each mode, for a verdict


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One condition. Times are seconds."""

    hosts: int
    rate_bps: float
    round_trip: float
    loss: float
    burst: float
    size: int  # bytes
    bound: float  # of the bounded mode
    exact: Spread
    bounded: Spread
    bbr: Spread  # Gloo's ring over TCP
    cubic: Spread
    ratio: float  # exact / bounded, medians
    ratio_p99: float
    tcp_ratio: float  # the faster TCP / the faster mode, medians
    wrong: int
    datagrams: int
    lost: int
    dropped: int
    cpu: float  # seconds, of this process
    exact_samples: list[float]
    bounded_samples: list[float]
    bbr_samples: list[float]
    cubic_samples: list[float]

    @property
    def faster(self) -> str:
        """The mode whose mean time is lower by more than twice the standard error."""
        return _fastest({"exact": self.exact_samples, "bounded": self.bounded_samples})

    @property
    def fastest(self) -> str:
        """Likewise: a mode, EITHER if both modes are faster than TCP and equally fast, or TCP with
        the faster of its congestion controls."""
        ours = min(self.exact_samples, self.bounded_samples, key=fmean)
        theirs = min(self.bbr_samples, self.cubic_samples, key=fmean)
        found = _fastest({EITHER: ours, TCP: theirs})
        return self.faster if found == EITHER and self.faster != UNCLEAR else found


def _fastest(samples: dict[str, Sequence[float]]) -> str:
    """That of two whose mean is lower by more than twice the standard error, or UNCLEAR."""
    (first, one), (second, other) = samples.items()
    if len(one) < ENOUGH:
        return UNCLEAR
    chance = 2 * sqrt((variance(one) + variance(other)) / len(one))
    gain = fmean(other) - fmean(one)
    if abs(gain) <= chance:
        return UNCLEAR
    return first if gain > 0 else second


def add_sweep(operations: Commands) -> None:
    """Add `sweep`."""
    text = "All-reduces in virtual time, exact, bounded and over TCP: round trips, losses, bursts."
    made = command(operations, "sweep", sweep, text)
    for option, kind, default, text in (
        ("--hosts", whole(2, MAX_HOSTS), "4", "numbers of hosts at one switch"),
        ("--round-trips", _milliseconds, "0.1,1,10,100", "milliseconds without data"),
        ("--losses", injected, "0.01%,0.1%,1%,5%", "fractions of the datagrams that are lost"),
        ("--bursts", whole(1, 1000), "1,8,64", "datagrams lost in sequence, on average"),
    ):
        add_list(made, option, kind, default, text)
    add_sizes(made, "1M")
    made.add_argument("--rate", default="1gbit", help="rate of each wire (%(default)s)")
    made.add_argument(
        "--max-loss",
        type=bound,
        metavar="F",
        help="bound of the bounded mode (twice the loss, at least 0.01)",
    )
    made.add_argument(
        "--repeat", type=whole(1, 10_000), default=6, metavar="N", help="operations (%(default)s)"
    )
    made.add_argument(
        "--warmup", type=whole(0, 100), default=2, metavar="N", help="before them (%(default)s)"
    )
    made.add_argument("--csv", metavar="FILE", help="also write a line per condition")
    made.add_argument("--svg", metavar="FILE", help="also write a map as a picture")
    add_seed(made)


def sweep(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong."""
    wanted = ("csv", options.csv, comma_separated), ("svg", options.svg, drawn)
    files = [
        (OutputFile(f"--{name}", Path(path)), make)
        for name, path, make in wanted
        if path is not None
    ]
    for file, _ in files:
        file.check()
    rows = Rows(SweepRow)
    conditions = list(conditions_of(options))
    for number, each in enumerate(conditions, 1):
        output.progress(f"{number} of {len(conditions)}: {_words(each)}")
        rows.add(_labels(each), partial(_row, each, options))
    output.line(_heading(options))
    output.line(rows.render(HEADER, _cells, left=0))
    for line in (*rows.reasons(), *_wrong(rows)):
        output.line(line)
    for file, make in files:
        file.write(make(list(rows)))
    output.document(
        {
            "command": "bench sweep",
            "version": __version__,
            "conditions": _heading(options),
            "repeat": options.repeat,
            "warmup": options.warmup,
            "seed": options.seed,
            "rows": rows.document(),
        }
    )
    return 1 if any(row.wrong for row in rows) else 0


def conditions_of(options: argparse.Namespace) -> Iterator[SimCondition]:
    """All combinations. Raises: BadConfig."""
    rate = wire_rate(options.rate)
    for hosts, size, burst, loss, round_trip in product(
        options.hosts, options.sizes, options.bursts, options.losses, options.round_trips
    ):
        check_whole(size)
        yield SimCondition(hosts, rate, round_trip, loss, burst, size)


def wire_rate(text: str) -> float:
    """Bits per second of `--rate`. Raises: BadConfig."""
    try:
        rate = float(bits_per_second(text))
    except FabricError as exc:
        raise BadConfig(f"--rate: {exc}") from exc
    if not 0 < rate <= MAX_RATE:
        raise BadConfig(f"--rate: {text} is out of range: at most {MAX_RATE / 1e9:g}gbit")
    return rate


def check_whole(size: int) -> None:
    """Raises: BadConfig if `size` bytes are not a number of float32."""
    if size % 4:
        raise BadConfig(f"--sizes: {size} bytes are not a whole number of float32")


def _row(condition: SimCondition, options: argparse.Namespace) -> SweepRow:
    """Raises: NotCompleted."""
    limit = options.max_loss or min(max(2 * condition.loss, LEAST_BOUND), MAX_LOSS_LIMIT)
    begun = time.process_time()
    asked = {"warmup": options.warmup, "repeat": options.repeat, "seed": options.seed}
    exact, bounded = (all_reduces(condition, max_loss, **asked) for max_loss in (0.0, limit))
    bbr, cubic = (tcp_all_reduces(condition, name, **asked) for name in ("bbr", "cubic"))
    ours, theirs = ([Spread.of(each.times) for each in p] for p in ((exact, bounded), (bbr, cubic)))
    return SweepRow(
        condition.hosts,
        condition.rate_bps,
        condition.round_trip,
        condition.loss,
        condition.burst,
        condition.size,
        limit,
        ours[0],
        ours[1],
        theirs[0],
        theirs[1],
        quotient(ours[0].p50, ours[1].p50),
        quotient(ours[0].p99, ours[1].p99),
        quotient(min(each.p50 for each in theirs), min(each.p50 for each in ours)),
        exact.wrong + bounded.wrong,
        exact.datagrams + bounded.datagrams,
        exact.lost + bounded.lost,
        exact.dropped + bounded.dropped,
        time.process_time() - begun,
        exact.times,
        bounded.times,
        bbr.times,
        cubic.times,
    )


def _milliseconds(text: str) -> float:
    """Seconds. Raises: ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_ROUND_TRIP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a round trip; write milliseconds, up to {MAX_ROUND_TRIP:g}"
        )
    return value / 1e3


def _labels(condition: SimCondition) -> dict[str, object]:
    return {
        "hosts": condition.hosts,
        "size": condition.size,
        "round_trip": condition.round_trip,
        "loss": condition.loss,
        "burst": condition.burst,
    }


def _words(condition: SimCondition) -> str:
    lost = f"{show_fraction(condition.loss)} lost in bursts of {condition.burst:g}"
    trip = f"round trip {condition.round_trip * 1e3:g} ms"
    return f"{condition.hosts} hosts, {show_size(condition.size)}, {trip}, {lost}"


def _heading(options: argparse.Namespace) -> str:
    return (
        f"simulated hosts at one switch, {options.rate} per wire, virtual time: all-reduces of "
        f"float32, {options.warmup} + {options.repeat} per mode, seed {options.seed}\n"
        "packets are lost between the switch and the host that they are for; TCP is Gloo's ring, "
        "simulated without CPU time"
    )


def _cells(row: SweepRow) -> list[object]:
    ours = [v for spread in (row.exact, row.bounded) for v in (spread.p50, spread.p90, spread.p99)]
    milliseconds = (f"{value * 1e3:.2f}" for value in (*ours, row.bbr.p50, row.cubic.p50))
    return [
        row.hosts,
        show_size(row.size),
        f"{row.round_trip * 1e3:g}",
        show_fraction(row.loss),
        f"{row.burst:g}",
        f"{row.bound:g}",
        *milliseconds,
        f"{row.ratio:.2f}",
        f"{row.ratio_p99:.2f}",
        row.faster,
        f"{row.tcp_ratio:.2f}",
        row.fastest,
        row.wrong,
    ]


def _wrong(rows: Rows[SweepRow]) -> Iterator[str]:
    for row in rows:
        if row.wrong:
            yield f"WRONG RESULT: {row.wrong} operations (promises P1 and P2): {_labels_of(row)}"


def _labels_of(row: SweepRow) -> str:
    return f"{row.hosts} hosts, {show_size(row.size)}, {row.round_trip * 1e3:g} ms, loss {row.loss}"
