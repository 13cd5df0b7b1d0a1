"""A table of timers, and when the next one is due."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Any, Final

# Expired timers handled at a time, before arrivals are looked at again. A deadline takes a
# millisecond in a job of 64 ranks, and peers suspect an engine that is silent for one second.
MOST_DUE: Final = 64
SLACK: Final = 256  # dead heap entries beyond twice the live ones before they are swept out:
# a deadline an hour away is set and cancelled with every operation of a fast job


class Timer(Enum):
    """The purpose of a timer. Its key in the table is (owner, Timer, subject)."""

    __hash__ = object.__hash__  # Enum's own is interpreted, and keys are hashed all the time

    END = auto()  # flow, transfer: no verdict on a pass: send END again
    VERDICT = auto()  # flow, transfer: quiet for long enough to judge what is missing
    ANSWER = auto()  # flow: the answers that wait for company are due
    CREDIT = auto()  # flow: the data in flight should have been credited
    PACE = auto()  # flow, endpoint: the pace lets datagrams out again
    DEADLINE = auto()  # session, ticket: the operation has failed
    READY = auto()  # session, peer: repeat READYs that it may not have
    ALIVE = auto()  # session, peer: check its liveness
    DIGESTS = auto()  # session: ask again for the digests that it lacks
    ROUTE = auto()  # discovery, (flow, turn): the next hop of a search for routes
    MTU_LOOK = auto()  # MTU discovery, flow: check whether sent data arrive
    MTU_SEARCH = auto()  # MTU discovery, (flow, path): the next round of a search
    RELEASED = auto()  # engine, session: tell the client which operations were released
    HELD = auto()  # engine, session: fail the operation that waits for an offered network
    DELIVERY = auto()  # engine, session: end the delivery for a client that left


@dataclass(slots=True, repr=False)
class TimerTable:
    """At most one pending time per key; setting a key again replaces its time."""

    _at: dict[Hashable, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, Hashable]] = field(default_factory=list)
    _tiebreak: int = 0

    def set(self, key: Hashable, at: float) -> None:
        """Expire `key` at `at`, seconds."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        self._tiebreak += 1
        heappush(self._heap, (at, self._tiebreak, key))
        if len(self._heap) > 2 * len(self._at) + SLACK:
            self._sweep()

    def _sweep(self) -> None:
        """Drop replaced and cancelled entries. Linear, and so rare that it costs O(1) per `set`."""
        live = {entry[2]: entry for entry in self._heap if self._at.get(entry[2]) == entry[0]}
        self._heap = list(live.values())
        heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        """Forget `key`; a no-op when it is not set."""
        self._at.pop(key, None)

    def discard(self, unwanted: Callable[[Any], bool]) -> None:
        """Forget all keys that `unwanted` accepts, and sweep cancelled entries: keys contain
        operations, which hold the memory of sessions."""
        for key in [key for key in self._at if unwanted(key)]:
            del self._at[key]
        self._sweep()

    def pending(self, key: Hashable) -> bool:
        """Whether `key` is set."""
        return key in self._at

    def next_timeout(self) -> float | None:
        """Absolute time of the earliest pending timer."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._at.get(key) == at:
                return at
            heappop(self._heap)  # replaced or cancelled since
        return None

    def pop_due(self, now: float, most: int = MOST_DUE) -> list[Hashable]:
        """At most `most` keys that expired, in order of their times; they are no longer pending."""
        due: list[Hashable] = []
        while len(due) < most and (at := self.next_timeout()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._at[key]
            due.append(key)
        return due

    @property
    def entries(self) -> int:
        """Entries kept, dead ones included: what the table costs in memory."""
        return len(self._heap)

    def __len__(self) -> int:
        return len(self._at)
