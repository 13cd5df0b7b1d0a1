"""The paths of one flow together: which carries the next burst, which are silent, what to credit.

Rules of a single path are in `path`. Spraying is by room: the path with the emptiest window
takes the next burst, so a slow or lossy one takes less.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from dlcpd.core.control import PathCredit
from dlcpd.core.path import PathReceiver, PathSender

SPRAY_QUANTUM: Final = 180  # datagrams sent on one path before the next is asked: 4 GSO bursts
STALLS_BEFORE_DOWN: Final = 3  # checks, each with a ping: one or two may be lost


@dataclass(slots=True, eq=False)
class Paths:
    """Both directions of every path, by index. A peer may name indices that do not exist."""

    tx: list[PathSender]
    rx: list[PathReceiver]
    _next: int = field(default=0)

    @classmethod
    def new(cls, count: int) -> Self:
        """`count` paths that have carried nothing yet."""
        return cls([PathSender() for _ in range(count)], [PathReceiver() for _ in range(count)])

    def __len__(self) -> int:
        return len(self.tx)

    # --- out ------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Datagrams out on all paths."""
        return sum(path.in_flight for path in self.tx)

    @property
    def acked(self) -> int:
        """Changes whenever the peer credits something."""
        return sum(path.acked for path in self.tx)

    def timeout(self, attempt: int = 0) -> float:
        """How long to wait for an answer on whichever path, seconds."""
        return max(path.rtt.timeout(attempt) for path in self.tx)

    @property
    def reordering(self) -> float:
        """Quiet time after which a hole is taken for a loss, seconds."""
        return max(path.rtt.reordering for path in self.tx)

    def pick(self) -> tuple[int, int]:
        """The path for the next burst, and the datagrams it may take."""
        count, turn = len(self.tx), self._next
        if count == 1:
            return 0, self.tx[0].room
        usable = [p for p in range(count) if self.tx[p].up] or list(range(count))
        best = max(usable, key=lambda p: (self.tx[p].room, -((p - turn) % count)))
        self._next = (best + 1) % count
        return best, min(self.tx[best].room, SPRAY_QUANTUM)

    def for_control(self, attempt: int) -> int:
        """The path with the shortest round trip; the others in turn for later attempts, since
        the best one may just have died."""
        if len(self.tx) == 1:
            return 0
        order = sorted(
            range(len(self.tx)), key=lambda p: (not self.tx[p].up, self.tx[p].rtt.smoothed)
        )
        return order[attempt % len(order)]

    def silent(self) -> list[int]:
        """Paths that owe an answer since the last look; to be pinged."""
        return [index for index, path in enumerate(self.tx) if path.check()]

    def demote(self, silent: list[int]) -> int:
        """Take down those of the silent that have been so for long, while others answer.
        Returns how many went down."""
        if len(silent) == len(self.tx):
            return 0
        dead = [
            self.tx[index]
            for index in silent
            if self.tx[index].up and self.tx[index].stalls >= STALLS_BEFORE_DOWN
        ]
        for path in dead:
            path.demote()
        return len(dead)

    def on_credit(self, rows: Iterable[PathCredit], arrived_at: float, now: float) -> None:
        """What the peer says of the paths towards it."""
        for row in rows:
            if row.path < len(self.tx):
                self.tx[row.path].heard()
                self.tx[row.path].on_credit(row, arrived_at, now)

    # --- in -------------------------------------------------------------------------

    def on_arrival(self, path: int, count: int, largest: int, *, ask: bool) -> None:
        """`count` data datagrams came, the newest numbered `largest`; the peer may `ask` for
        credit."""
        if path < len(self.rx):
            self.rx[path].on_datagrams(count, largest)
            self.rx[path].asked |= ask

    def on_stamp(self, path: int, sent_at: int, arrived_at: float) -> None:
        """When a datagram left, microseconds of the peer's clock, and when it came."""
        if path < len(self.rx):
            self.rx[path].on_stamp(sent_at, arrived_at)

    @property
    def asked(self) -> bool:
        """Whether the peer waits for credit."""
        return any(path.asked for path in self.rx)

    @property
    def pending(self) -> bool:
        """Whether anything came that the peer does not know of."""
        return any(path.pending for path in self.rx)

    def credits(self, now: float) -> list[PathCredit]:
        """Rows of a CREDIT; what they tell is no longer pending."""
        return [
            path.credit(index, now)
            for index, path in enumerate(self.rx)
            if path.pending or path.asked
        ]
