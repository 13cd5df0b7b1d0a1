"""All-reduces of Gloo's ring over simulated TCP: the times of one condition."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.cell import SimCondition, SimTimes, train_of
from dlcp_lab.simulation.fabric import SimFabric, star
from dlcp_lab.simulation.tcp.bbr import Bbr
from dlcp_lab.simulation.tcp.congestion import Congestion
from dlcp_lab.simulation.tcp.connection import Connection, segments
from dlcp_lab.simulation.tcp.cubic import Cubic
from dlcp_lab.simulation.tcp.receiver import Receiver
from dlcp_lab.simulation.train import Train

ALGORITHMS: Final[dict[str, Callable[[], Congestion]]] = {"cubic": Cubic, "bbr": Bbr}
PIECES: Final = 2  # of a rank's part, which travel one behind the other (gloo/allreduce.cc)
MOST_EVENTS: Final = 20_000_000


@dataclass(slots=True)
class _Host:
    """One rank of the ring in one operation."""

    out: Connection  # to the next rank
    piece: int  # bytes
    steps: int  # pieces that it sends, and that it receives
    base: int = 0  # segments of earlier operations
    received: int = 0  # pieces

    def begin(self) -> None:
        """Send the pieces of its own part."""
        self.received = 0
        for _ in range(min(PIECES, self.steps)):
            self.out.write(self.piece)

    def arrived(self, in_order: int) -> None:
        """The rank before has delivered `in_order` segments; each whole piece is passed on."""
        whole = (in_order - self.base) // segments(self.piece)
        while self.received < whole:
            self.received += 1
            if self.received + PIECES <= self.steps:
                self.out.write(self.piece)


@dataclass(slots=True)
class _Ring:
    condition: SimCondition
    algorithm: str
    seed: int
    calendar: Calendar = field(init=False)
    fabric: SimFabric = field(init=False)
    hosts: list[_Host] = field(init=False)

    def __post_init__(self) -> None:
        given = self.condition
        plan = star(
            given.hosts,
            given.rate_bps,
            given.round_trip,
            loss=given.loss,
            burst=given.burst,
            seed=self.seed,
        )
        self.calendar = Calendar(1.0)
        self.fabric = SimFabric(plan, self.calendar, self._deliver)
        piece = -(-given.size // (given.hosts * PIECES))
        steps = 2 * (given.hosts - 1) * PIECES
        self.hosts = []
        for rank in range(given.hosts):
            following = (rank + 1) % given.hosts
            made = Connection(
                self.calendar,
                self.fabric,
                rank,
                following,
                rank,
                ALGORITHMS[self.algorithm](),
                train_of(given),
                Receiver(self.fabric, partial(self._arrived, following)),
            )
            self.hosts.append(_Host(made, piece, steps))

    def _arrived(self, rank: int, in_order: int) -> None:
        self.hosts[rank].arrived(in_order)

    def _deliver(self, train: Train) -> None:
        """The path of a train is the number of its connection."""
        connection = self.hosts[train.path].out
        if train.control:
            connection.on_ack(int.from_bytes(train.control, "little"))
        else:
            connection.receiver.on_data(train)

    def run(self) -> float:
        """Seconds of one operation."""
        begun, limit = self.calendar.now, self.calendar.handled + MOST_EVENTS
        for host in self.hosts:
            host.begin()
        while any(host.received < host.steps for host in self.hosts):
            self.calendar.step()
            if self.calendar.handled > limit:
                raise AssertionError(f"livelock: {MOST_EVENTS} events")
        for host in self.hosts:
            host.base += host.steps * segments(host.piece)
        return self.calendar.now - begun


def tcp_all_reduces(
    condition: SimCondition, algorithm: str, *, warmup: int, repeat: int, seed: int
) -> SimTimes:
    """The times of `repeat` operations, one after the other. No data are added up: only the
    bytes of the ring travel."""
    ring = _Ring(condition, algorithm, seed)
    times = [ring.run() for _ in range(warmup + repeat)]
    sent = sum(port.sent for name, port in ring.fabric.ports.items() if name.startswith("h"))
    return SimTimes(times[warmup:], 0, sent, ring.fabric.lost, ring.fabric.dropped)
