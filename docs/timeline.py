"""Draws docs/images/timeline.svg: the datagrams of an all-reduce over a long path that loses some.

The engines' own core runs in virtual time, three times: exact, bounded without a PERMIT, and
bounded with it. `make configuration-reference` runs it; the same code draws the same bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import numpy as np

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.core.wire.header import HEADER_SIZE, Flag, Header, Kind

PICTURE: Final = Path(__file__).parent / "images" / "timeline.svg"
ROUND_TRIP: Final = 10e-3  # seconds
RATE: Final = 12_000  # datagrams per second: the contributions of one rank take 4 ms
SEGMENTS: Final = 48  # of one rank's contribution
SEGMENT: Final = 128  # bytes
LOST: Final = (9, 30)  # of the contributions of rank 0, in the order in which they leave
WARM: Final = 4  # operations that measure the path first
BOUND: Final = 0.1
SHOWN: Final = frozenset({Kind.END, Kind.NACK, Kind.FINAL, Kind.ACK, Kind.PERMIT, Kind.COMPLETE})


@dataclass(frozen=True)
class Sent:
    """One datagram of the operation. Times in seconds since its submission."""

    source: int  # rank
    name: str  # in the picture
    left: float
    arrived: float  # if the network lost it: when it would have arrived
    lost: bool
    said: bytes = b""  # of control: its kind and body, equal for repetitions


@dataclass(frozen=True)
class Group:
    """Datagrams of one rank with one name, in the order in which they left. Of control: one."""

    sent: list[Sent]

    @property
    def label(self) -> str:
        """As the picture names them."""
        one = self.sent[0]
        count = f"{len(self.sent)} " if not one.said else ""
        return f"{count}{one.name}{' lost' if one.lost else ''}"


@dataclass(frozen=True)
class Run:
    """An all-reduce as it went. Times in seconds since its submission."""

    title: str
    groups: list[Group]
    done: tuple[float, float]  # by rank
    waived: int  # segments

    @property
    def took(self) -> float:
        """Until it was done on both ranks."""
        return max(self.done)

    @property
    def wait(self) -> tuple[float, float]:
        """From when rank 1 reports what it lacks until it sends its results."""
        own = [group.sent[0] for group in self.groups if group.sent[0].source == 1]
        reported = next(each.left for each in own if each.name.startswith(("NACK", "FINAL")))
        return reported, next(each.left for each in own if each.name == "results")


@dataclass
class Watched(SimNetwork):
    """Two hosts; it loses the contributions of `LOST`, and every PERMIT if it has to."""

    permits: bool = True
    seen: list[Sent] = field(default_factory=list)
    number: int = 0  # of the operation that runs
    begun: float = 0.0
    contributions: int = 0  # of rank 0, so far
    arrival: float = 0.0

    def carry(self, source: int, target: int, data: bytes) -> list[bytes]:
        """As `tamper`: which of the datagrams arrive."""
        header = Header.unpack_untrusted(data)
        lost = header.kind is Kind.PERMIT and not self.permits
        if source == 0 and not header.round and self.is_contribution(source, target, data):
            lost = self.contributions in LOST
            self.contributions += 1
        self.arrival = self.now + self.link.delay
        if not lost:
            self.inject(target, data)
        name = self._name(source, target, header, data)
        if header.operation == self.number and name:
            said = b"" if header.kind is Kind.DATA else bytes([header.kind]) + data[HEADER_SIZE:]
            times = self.now - self.begun, self.arrival - self.begun
            self.seen.append(Sent(source, name, *times, lost, said))
        return []

    def _on_the_way(
        self, leave: float, target: int, path: int, data: bytes, *, marked: bool = False
    ) -> None:
        self.arrival = leave + self.link.delay  # there is neither a detour nor jitter
        super()._on_the_way(leave, target, path, data, marked=marked)

    def _name(self, source: int, target: int, header: Header, data: bytes) -> str:
        if header.kind is not Kind.DATA:
            told = " (WAIVED)" if header.flags & Flag.WAIVED else ""
            return header.kind.name + told if header.kind in SHOWN else ""
        if self.is_result(source, target, data):
            return "results"
        return "retransmitted" if header.round else "contributions"


def run(title: str, max_loss: float, *, permits: bool) -> Run:
    """The last of some all-reduces."""
    link = SimLink(delay=ROUND_TRIP / 2, rate=RATE, queue=400)
    net = Watched(2, link, segment_size=SEGMENT, chunk_segments=SEGMENTS, permits=permits)
    net.tamper = net.carry
    done = [0.0, 0.0]
    for number in range(1, WARM + 2):
        net.number, net.begun, net.contributions = number, net.now, 0
        net.seen.clear()
        rng = np.random.default_rng(number)
        size = 2 * SEGMENTS * SEGMENT // 4
        parts = [rng.standard_normal(size).astype(np.float32) for _ in range(2)]
        net.submit_all(number, parts, max_loss=max_loss, name="layer")
        for rank in range(2):
            net.run(enough=partial(_is_done, net, number, rank))
            done[rank] = net.now - net.begun
        seen = list(net.seen)
        net.run(until=0.1)
    waived = sum(net.done(rank)[number].stats.lost for rank in range(2))
    return Run(title, _groups(seen), (done[0], done[1]), waived)


def _is_done(net: SimNetwork, number: int, rank: int) -> bool:
    return number in net.done(rank)


def _groups(seen: Iterable[Sent]) -> list[Group]:
    """In the order in which their first datagrams left; repetitions of control are left out."""
    found: dict[tuple[int, str, bool, bytes], Group] = {}
    for each in seen:
        group = found.setdefault((each.source, each.name, each.lost, each.said), Group([]))
        if not each.said or not group.sent:
            group.sent.append(each)
    return list(found.values())


def runs() -> tuple[Run, Run, Run]:
    """Exact, asked and permitted."""
    return (
        run("Exact: NACK, and the segments are sent again", 0.0, permits=True),
        run("Bounded, without PERMIT: FINAL asks, ACK answers", BOUND, permits=False),
        run("Bounded, with PERMIT: FINAL only tells", BOUND, permits=True),
    )


WIDTH: Final = 920  # units of the picture
LEFT: Final = 70  # where time 0 is
SCALE: Final = 23e3  # units per second
PANEL: Final = 232  # height
TOP: Final = 46  # of the first panel
RANKS: Final = 88, 168  # heights of the lines of rank 0 and rank 1 in a panel
ROW: Final = 15  # of labels
LETTER: Final = 7.8  # average width of a letter of a label, somewhat too wide
LAST: Final = 35  # end of the axis, ms
BLUE, GREEN, RED, BROWN, GREY = "#1f6fb2", "#2e8b57", "#c62828", "#9a5b00", "#44525f"
COLOURS: Final = {
    "contributions": BLUE,
    "results": GREEN,
    "retransmitted": BLUE,
    "COMPLETE": GREY,
    "END": GREY,
}  # of the others: brown
HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-labelledby="t d" font-family="sans-serif" font-size="12" fill="#1b2733">
<title id="t">One all-reduce, exact and bounded</title>
<desc id="d">{description}</desc>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#44525f"/></marker></defs>
<rect width="{width}" height="{height}" rx="10" fill="#f6f8fa" stroke="#c6d0d9"/>
<text x="16" y="24" font-size="14">All-reduce of two hosts, round trip 10 ms, {lost} of \
{segments} contributions of rank 0 lost. READY, CREDIT and repetitions are not drawn.</text>
"""


@dataclass(frozen=True)
class Label:
    """A text that begins at `x`; above the line of rank 0 or below that of rank 1."""

    x: float
    text: str
    colour: str
    bold: bool = False


def picture(shown: Iterable[Run]) -> str:
    """The SVG."""
    panels = list(shown)
    height = TOP + PANEL * len(panels) + 30
    said = "; ".join(f"{each.title}: done after {_ms(each.took)}" for each in panels)
    text = HEAD.format(
        width=WIDTH, height=height, description=escape(said), lost=len(LOST), segments=SEGMENTS
    )
    axis = "".join(_ticks(height - 30))
    drawn = (line for n, each in enumerate(panels) for line in _panel(each, TOP + n * PANEL))
    return f"{text}{axis}{''.join(drawn)}</svg>\n"


def _ticks(bottom: int) -> Iterator[str]:
    for ms in range(0, LAST + 1, 5):
        x = _x(ms / 1e3)
        yield f'<path d="M{x} {TOP}V{bottom}" stroke="#dbe2e8"/>\n'
        unit = " ms" if ms == LAST else ""
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{ms}{unit}</text>\n'


def _panel(each: Run, top: int) -> Iterator[str]:
    lines = tuple(top + at for at in RANKS)
    yield f'<text x="16" y="{top + 14}" font-size="14" font-weight="bold">{each.title}: '
    yield f"done on both ranks after {_ms(each.took)}</text>\n"
    for rank, y in enumerate(lines):
        yield f'<text x="16" y="{y + 4}">rank {rank}</text>'
        yield f'<path d="M{LEFT} {y}H{_x(LAST / 1e3)}" stroke="{GREY}"/>\n'
    for group in each.groups:
        yield from _group(group, lines)
    begin, end = each.wait
    if end > begin + ROUND_TRIP / 10:
        yield f'<path d="M{_x(begin)} {lines[1]}H{_x(end)}" stroke="{RED}" stroke-width="5"/>\n'
    for rank, y in enumerate(lines):
        yield f'<circle cx="{_x(each.done[rank])}" cy="{y}" r="5" fill="#1b2733"/>\n'
        yield from _labels(_texts(each, rank), y, -1 if rank == 0 else 1)


def _group(group: Group, lines: tuple[int, ...]) -> Iterator[str]:
    """A band from sender to receiver; a line for one datagram; a cross where one is lost."""
    first, last = group.sent[0], group.sent[-1]
    y, to = lines[first.source], lines[1 - first.source]
    colour = _colour(group)
    if first.lost:
        for each in group.sent:
            x, middle = _middle(each, y, to)
            yield f'<path d="M{_x(each.left)} {y}L{x} {middle}" stroke="{RED}"/>'
            yield f'<path d="M{x - 4:.1f} {middle - 4}l8 8m0 -8l-8 8" stroke="{RED}" '
            yield 'stroke-width="2" fill="none"/>\n'
        return
    if len(group.sent) > 1:
        yield f'<path d="M{_x(first.left)} {y}H{_x(last.left)}L{_x(last.arrived)} {to}'
        yield f'H{_x(first.arrived)}z" fill="{colour}" fill-opacity="0.3"/>\n'
    for each in {first.left: first, last.arrived: last}.values():
        yield f'<path d="M{_x(each.left)} {y}L{_x(each.arrived)} {to}" stroke="{colour}" '
        yield 'marker-end="url(#a)"/>\n'


def _middle(each: Sent, y: int, to: int) -> tuple[float, int]:
    return (_x(each.left) + _x(each.arrived)) / 2, (y + to) // 2


def _texts(each: Run, rank: int) -> Iterator[Label]:
    for group in each.groups:
        if group.sent[0].source == rank:
            yield Label(_x(group.sent[0].left), group.label, _colour(group))
    done = each.done[rank]
    yield Label(_x(done), f"done {_ms(done)}", "#1b2733", bold=True)
    begin, end = each.wait
    if rank == 1 and end > begin + ROUND_TRIP / 10:
        yield Label((_x(begin) + _x(end)) / 2, f"waits {_ms(end - begin)}", RED)


def _labels(texts: Iterable[Label], y: int, step: int) -> Iterator[str]:
    """In rows away from the line, each in the nearest row that has room."""
    ends: list[float] = []
    for each in sorted(texts, key=lambda label: label.x):
        size = LETTER * len(each.text)
        x = min(each.x, WIDTH - 10 - size)
        row = next((n for n, end in enumerate(ends) if end < x), len(ends))
        ends[row : row + 1] = [x + size + 8]
        at = y + step * (ROW * row + 8) + (8 if step > 0 else 0)
        weight = ' font-weight="bold"' if each.bold else ""
        yield f'<text x="{x:.1f}" y="{at}" fill="{each.colour}"{weight}>'
        yield f"{escape(each.text)}</text>\n"


def _colour(group: Group) -> str:
    one = group.sent[0]
    return RED if one.lost else COLOURS.get(one.name, BROWN)


def _x(seconds: float) -> float:
    return round(LEFT + seconds * SCALE, 1)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    PICTURE.write_text(picture(runs()), encoding="utf-8")
