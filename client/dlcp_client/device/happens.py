"""Which accesses to memory happen before which: finds a use before its event, whatever the timing.

Each stream, and the process itself ("host"), has a clock that counts its own steps and knows how
far it has seen those of the others. It learns by waiting for an event, and a stream also by being
given work: what the host knew then. Two accesses to the same bytes, one of which writes, are in
order where the later one's clock has seen the earlier one's step; else one of them comes too
early on some day, if not today. Threads of the host count as one: they hand over by locks.
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
    """Memory was used before what used it last was known to be over."""

    code = "use_before_event"


@dataclass(frozen=True, slots=True)
class Access:
    """One use of memory."""

    where: Range
    writes: bool
    stream: str
    step: int
    what: str  # in words

    def meets(self, other: "Access") -> bool:
        """Whether the two touch the same bytes, and it matters who is first."""
        apart = self.where[1] <= other.where[0] or other.where[1] <= self.where[0]
        return (self.writes or other.writes) and not apart


class History:
    """Accesses that nobody may know to be over. Not for threads: who owns it has a lock."""

    def __init__(self) -> None:
        self._clocks: dict[str, Clock] = {HOST: Clock()}
        self._open: list[Access] = []

    def __len__(self) -> int:
        return len(self._open)

    def now(self, stream: str) -> Clock:
        """What `stream` has seen, for an event."""
        return self._clocks.setdefault(stream, Clock()).copy()

    def learn(self, stream: str, seen: Clock) -> None:
        """`stream` waits for an event."""
        self._clocks[stream] = self.now(stream) | seen
        if stream == HOST:  # everything that begins from now on is after these
            known = self._clocks[HOST]
            self._open = [a for a in self._open if a.step > known[a.stream]]

    def users(self, where: Range, streams: Collection[str]) -> list[str]:
        """What `streams` do with memory, as far as the host does not know it to be over."""
        access = Access(where, True, HOST, 0, "")
        return [a.what for a in self._open if a.stream in streams and a.meets(access)]

    def use(self, stream: str, reads: list[Range], writes: list[Range], what: str) -> None:
        """One step of `stream`. Raises: UseBeforeEvent."""
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
