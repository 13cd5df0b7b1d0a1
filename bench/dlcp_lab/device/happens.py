"""Checks the order of memory accesses: finds a use before its event, independent of timing.

Each stream, and the process itself ("host"), has a clock that counts its own steps and the steps it
has seen of the others (a vector clock). It learns by waiting for an event; a stream also learns
what the host knew when it was given work. Two accesses to the same bytes, of which one writes, are
ordered if the later one's clock has seen the earlier one's step; otherwise they race. Threads of
the host count as one: they synchronise by locks.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from dlcpd.contract.errors import DlcpError

HOST: Final = "host"

Clock = Counter[str]  # steps seen, by stream
Range = tuple[int, int]  # addresses [start, stop)


class UseBeforeEvent(DlcpError):
    """Memory was used before its previous access was known to be complete."""

    code = "use_before_event"


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory."""

    where: Range
    writes: bool
    stream: str
    step: int
    what: str  # description

    def meets(self, other: "Access") -> bool:
        """Whether both access the same bytes, and at least one writes."""
        apart = self.where[1] <= other.where[0] or other.where[1] <= self.where[0]
        return (self.writes or other.writes) and not apart


class History:
    """Accesses that the host has not seen complete. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._clocks: dict[str, Clock] = {HOST: Clock()}
        self._open: list[Access] = []

    def __len__(self) -> int:
        return len(self._open)

    def now(self, stream: str) -> Clock:
        """The clock of `stream`, for an event."""
        return self._clocks.setdefault(stream, Clock()).copy()

    def learn(self, stream: str, seen: Clock) -> None:
        """Record that `stream` waits for an event."""
        self._clocks[stream] = self.now(stream) | seen
        if stream == HOST:  # every later access is after these
            known = self._clocks[HOST]
            self._open = [a for a in self._open if a.step > known[a.stream]]

    def users(self, where: Range, streams: Collection[str]) -> list[str]:
        """Accesses of `streams` to the memory that the host has not seen complete."""
        access = Access(where, True, HOST, 0, "")
        return [a.what for a in self._open if a.stream in streams and a.meets(access)]

    def use(self, stream: str, reads: list[Range], writes: list[Range], what: str) -> None:
        """Record one step of `stream`. Raises: UseBeforeEvent."""
        if stream != HOST:
            self.learn(stream, self._clocks[HOST])
        clock = self._clocks[stream]
        clock[stream] += 1
        for where, changes in [*((r, False) for r in reads), *((w, True) for w in writes)]:
            self._use(clock, Access(where, changes, stream, clock[stream], what))

    def _use(self, clock: Clock, access: Access) -> None:
        for before in self._open:
            if before.meets(access) and clock[before.stream] < before.step:
                raise UseBeforeEvent(
                    f"{access.what} ({access.stream}) does not wait for: {before.what} "
                    f"({before.stream}), which uses the same {_common(before, access)} B"
                )
        if access.stream != HOST:
            self._open.append(access)


def _common(one: Access, other: Access) -> int:
    return min(one.where[1], other.where[1]) - max(one.where[0], other.where[0])
