"""The results of `dlcpctl bench sweep` as lines of CSV and as a picture. Pure."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, Protocol

from dlcp_lab.report.amounts import show_fraction, show_size
from dlcp_lab.report.statistic import Spread

CELL: Final = (84, 36)  # pixels
LEFT: Final = 96  # pixels, as the next
TOP: Final = 68
GAP: Final = 28
WIDTH: Final = 700  # at least: that of the legend
TITLE: Final = 48  # above and below a panel
FULL: Final = 2.0  # ratio from which on a cell has its full colour
UNCLEAR: Final = "unclear"  # verdict on two that may be equally fast
EITHER: Final = "dlcpd"  # both modes are faster than TCP, and may be equally fast
TCP: Final = "TCP"
COLOURS: Final = {  # red, green, blue
    "bounded": (31, 111, 178),
    "exact": (201, 111, 22),
    EITHER: (38, 145, 120),
    TCP: (150, 60, 150),
    UNCLEAR: (228, 228, 228),
}
GREY: Final = 228
HEADING: Final = "Median times of an all-reduce: exact / bounded above, TCP / the faster mode below"
LEGEND: Final = (
    "Fastest: blue bounded, orange exact, green both alike, violet TCP, grey unclear. "
    "Loss grows upwards, the round trip to the right."
)
COLUMNS: Final = (
    "hosts", "rate_bps", "round_trip_s", "loss", "burst", "size_bytes", "bound", "exact_p50_s",
    "exact_p90_s", "exact_p99_s", "bounded_p50_s", "bounded_p90_s", "bounded_p99_s", "bbr_p50_s",
    "bbr_p90_s", "bbr_p99_s", "cubic_p50_s", "cubic_p90_s", "cubic_p99_s", "ratio_p50",
    "ratio_p99", "tcp_ratio_p50", "faster", "fastest",
)  # fmt: skip


class MapRow(Protocol):
    """A condition and its times, in seconds."""

    @property
    def hosts(self) -> int: ...
    @property
    def rate_bps(self) -> float: ...
    @property
    def round_trip(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def burst(self) -> float: ...
    @property
    def size(self) -> int: ...
    @property
    def bound(self) -> float: ...
    @property
    def exact(self) -> Spread: ...
    @property
    def bounded(self) -> Spread: ...
    @property
    def bbr(self) -> Spread: ...
    @property
    def cubic(self) -> Spread: ...
    @property
    def ratio(self) -> float: ...
    @property
    def ratio_p99(self) -> float: ...
    @property
    def tcp_ratio(self) -> float: ...
    @property
    def faster(self) -> str: ...
    @property
    def fastest(self) -> str: ...


def comma_separated(rows: Sequence[MapRow]) -> str:
    """A line per condition, after one with the names of the columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        all_times = row.exact, row.bounded, row.bbr, row.cubic
        spreads = (v for s in all_times for v in (s.p50, s.p90, s.p99))
        figures = (*spreads, row.ratio, row.ratio_p99, row.tcp_ratio)
        labels = row.hosts, row.rate_bps, row.round_trip, row.loss, row.burst, row.size, row.bound
        writer.writerow([*labels, *(f"{v:.6g}" for v in figures), row.faster, row.fastest])
    return out.getvalue()


def drawn(rows: Sequence[MapRow]) -> str:
    """An SVG: a panel per hosts, size and burst; round trips from left to right, losses upwards.

    A cell says exact / bounded above and TCP / the faster mode below, and has the colour of the
    fastest: the more, the larger the ratio.
    """
    trips, losses = sorted({r.round_trip for r in rows}), sorted({r.loss for r in rows})
    panels = list(dict.fromkeys((r.hosts, r.size, r.burst) for r in rows))
    bursts = max(len([p for p in panels if p[:2] == panel[:2]]) for panel in panels) if rows else 1
    width = max(LEFT + bursts * (len(trips) * CELL[0] + GAP), WIDTH)
    height = TOP + math.ceil(len(panels) / bursts) * (len(losses) * CELL[1] + GAP + TITLE)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="t" font-family="sans-serif" font-size="12" fill="#1b2733">',
        '<title id="t">Times of all-reduces: exact, bounded, and over TCP</title>',
        f'<rect width="{width}" height="{height}" fill="#f6f8fa"/>',
        _text(16, 26, HEADING, 'font-size="16"'),
        _text(16, 46, LEGEND),
    ]
    for number, panel in enumerate(panels):
        left = LEFT + number % bursts * (len(trips) * CELL[0] + GAP)
        top = TOP + number // bursts * (len(losses) * CELL[1] + GAP + TITLE)
        mine = [row for row in rows if (row.hosts, row.size, row.burst) == panel]
        parts += _panel(mine, left, top, trips, losses)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    rows: Sequence[MapRow], left: int, top: int, trips: Sequence[float], losses: Sequence[float]
) -> Iterator[str]:
    first = rows[0]
    title = f"{first.hosts} hosts, {show_size(first.size)}, bursts of {first.burst:g}"
    yield _text(left, top + 12, title, 'font-weight="bold"')
    for row in rows:
        x = left + trips.index(row.round_trip) * CELL[0]
        y = top + 20 + (len(losses) - 1 - losses.index(row.loss)) * CELL[1]
        ratio = row.ratio if row.fastest == row.faster else row.tcp_ratio
        yield (
            f'<rect x="{x}" y="{y}" width="{CELL[0]}" height="{CELL[1]}" stroke="#f6f8fa" '
            f'fill="{colour(row.fastest, ratio)}"/>'
        )
        middle = x + CELL[0] // 2
        yield _text(middle, y + 15, f"{row.ratio:.2f}", 'text-anchor="middle" font-weight="bold"')
        yield _text(middle, y + 30, f"{row.tcp_ratio:.2f}", 'text-anchor="middle"')
        if trips.index(row.round_trip) == 0 and left == LEFT:
            yield _text(x - 8, y + 22, show_fraction(row.loss), 'text-anchor="end"')
    bottom = top + 36 + len(losses) * CELL[1]
    for number, trip in enumerate(trips):
        middle = left + number * CELL[0] + CELL[0] // 2
        yield _text(middle, bottom, f"{trip * 1e3:g} ms", 'text-anchor="middle"')


def colour(fastest: str, ratio: float) -> str:
    """Of a cell: grey at a ratio of 1, full at FULL or its inverse."""
    strength = min(abs(math.log(ratio)) / math.log(FULL), 1.0)
    mixed = (round(GREY + (one - GREY) * strength * 0.75) for one in COLOURS[fastest])
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _text(x: int, y: int, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" {more}>{escape(text)}</text>'
