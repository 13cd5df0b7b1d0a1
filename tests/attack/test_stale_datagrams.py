"""Datagrams of operations that are over, given to a flow that works on others (P8).

Two runs on the virtual clock, one of them undisturbed: their flows are the same in the end, and so
are times and results of operations.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any, Final

import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork, as_received
from dlcp_lab.simulation.reference import draw
from dlcp_lab.simulation.state import frozen
from dlcpd.core.paths.rtt import MIN_RTO
from dlcpd.core.paths.space import MAX_AHEAD
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

OLD: Final = (1, 2, 3)  # operations whose datagrams are recorded
NEW: Final = (4, 5, 6)
ELEMENTS: Final = {1: 3000, 2: 40, 3: 700, 4: 3000, 5: 40, 6: 700}  # by operation, float32
LINK: Final = SimLink(delay=50e-6, rate=400_000.0, queue=500)
# What is answered, because its sender may not have heard. So are flags of DATA.
ANSWERED: Final = {Kind.READY, Kind.END, Kind.PING}
NOTES: Final = {"counters", "effort", "touched", "timers", "_heap", "_tiebreak"}
Choice = Callable[[Header], bool]
Datagrams = list[tuple[int, bytes]]  # who gets it


class Run:
    """Operations 1 to 6 of two ranks; from the fourth on something comes with every step."""

    def __init__(self, lost: Choice) -> None:
        self.net = SimNetwork(2, LINK, seed=1, recorded=[])
        self.net.tamper = lambda _source, _target, data: [] if lost(_header(data)) else [data]
        self.ended: dict[tuple[int, int], float] = {}
        self.results: list[bytes] = []
        self.injected = Counter[str]()

    def old(self) -> Datagrams:
        """Run the first operations; what came to each rank."""
        self._operations(OLD, iter(()))
        return [(c.target, c.data) for c in self.net.recorded or ()]

    def new(self, strangers: Iterable[tuple[int, bytes]]) -> None:
        """Run the others, with `strangers` in between."""
        self._operations(NEW, iter(strangers))

    def _operations(self, numbers: Iterable[int], strangers: Iterator[tuple[int, bytes]]) -> None:
        for number in numbers:
            parts = draw("float32", 2, ELEMENTS[number], number)
            self.net.submit_all(number, parts, max_loss=0.05, name="n")
            self.net.run(until=1.0, enough=lambda: self._step(strangers))
            self.results += [part.tobytes() for part in parts]

    def _step(self, strangers: Iterator[tuple[int, bytes]]) -> bool:
        for rank, data in [pair for pair, _ in zip(strangers, range(2), strict=False)]:
            self.net.endpoints[rank].receive(as_received([data], 0, self.net), self.net.now)
            self.injected[Kind(data[1]).name] += 1
        for rank in range(2):
            for ticket in self.net.done(rank):
                self.ended.setdefault((rank, ticket), self.net.now)
        return False

    def numbers(self) -> list[dict[str, Any]]:
        """Of every space of every path, what counts datagrams."""
        flows = [session.flows[1 - rank] for rank, session in enumerate(self.net.sessions)]
        return [
            {"window": flow.window}
            | {f"tx {c}": (s.sent, s.acked, s.arrived) for c, s in flow.paths.tx[0].spaces.items()}
            | {f"rx {c}": (s.largest, s.received) for c, s in flow.paths.rx.paths[0].spaces.items()}
            for flow in flows
        ]


def _header(data: bytes) -> Header:
    return Header.unpack_untrusted(data[:HEADER_SIZE])


def nothing(_: Header) -> bool:
    """A network that loses nothing."""
    return False


def some(header: Header) -> bool:
    """One that loses some segments of data, the same in every run."""
    return header.kind is Kind.DATA and not header.round and header.segment % 13 == 5


def renumbered(old: Datagrams) -> Iterator[tuple[int, bytes]]:
    """With packet numbers that are anything."""
    near = range(0, 3000, 37)
    far = (MAX_AHEAD, MAX_AHEAD + 500, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
    for (rank, data), number in zip(old, cycle([*near, *far]), strict=False):
        yield rank, data[:24] + number.to_bytes(4, "little") + data[28:]


def both(lost: Choice, wanted: Choice, *, anything: bool = False) -> tuple[Run, Run]:
    """A run without, and one with, old datagrams that are `wanted`: as they were, or with packet
    numbers that are `anything`."""
    quiet, disturbed = Run(lost), Run(lost)
    quiet.old()
    old = [(rank, data) for rank, data in disturbed.old() if wanted(_header(data))]
    if wanted is passive:  # the end of a pass is a question: of most transfers here, all of it
        old = [(rank, data[:2] + bytes(1) + data[3:]) for rank, data in old]
    quiet.new(())
    disturbed.new(renumbered(old) if anything else old)
    return quiet, disturbed


def passive(header: Header) -> bool:
    """What nobody answers."""
    return header.kind not in ANSWERED


def any_kind(_: Header) -> bool:
    """All there is."""
    return True


@pytest.mark.check(4, "datagrams of operations that are over, once more: flows as without them")
@pytest.mark.parametrize("lost", [nothing, some], ids=["lossless", "lossy"])
def test_what_is_sent_once_more_leaves_no_trace(
    lost: Choice, measured: Callable[[str], None]
) -> None:
    quiet, disturbed = both(lost, passive)
    assert disturbed.ended == quiet.ended
    assert disturbed.results == quiet.results
    for mine, theirs in zip(disturbed.net.endpoints, quiet.net.endpoints, strict=True):
        assert frozen(mine.flows, NOTES) == frozen(theirs.flows, NOTES)
    measured(f"{disturbed.injected.total()} datagrams: {', '.join(sorted(disturbed.injected))}")


@pytest.mark.check(4, "the same under any packet number, and what is answered: no harm")
@pytest.mark.parametrize("anything", [False, True], ids=["as they were", "renumbered"])
@pytest.mark.parametrize("lost", [nothing, some], ids=["lossless", "lossy"])
def test_under_any_packet_number_it_does_no_harm(
    lost: Choice, anything: bool, measured: Callable[[str], None]
) -> None:
    quiet, disturbed = both(lost, any_kind, anything=anything)
    assert disturbed.results == quiet.results
    assert disturbed.ended.keys() == quiet.ended.keys()
    later = max(disturbed.ended[key] - at for key, at in quiet.ended.items())
    # A forged number may hide that a datagram was lost. A timer then finds it instead of END, once
    # among the contributions and once among the results.
    hidden = lost is some and anything
    assert later < (2 * MIN_RTO if hidden else 5e-3)
    assert without_arrivals(disturbed.numbers()) == without_arrivals(quiet.numbers())
    if not hidden:
        assert disturbed.numbers() == quiet.numbers()
    measured(f"{disturbed.injected.total()} datagrams, operations end {later * 1e3:.2f} ms later")


def without_arrivals(flows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was sent and what is out, and not how much of it came."""
    return [
        {key: value[:-1] if isinstance(value, tuple) else value for key, value in flow.items()}
        for flow in flows
    ]
