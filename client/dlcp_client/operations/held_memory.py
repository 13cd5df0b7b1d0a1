"""The memory that engines may access, by operation, and the results not yet copied from it."""

import weakref
from collections.abc import Collection
from typing import Any

from dlcp_client.operations.work import Work

Memory = tuple[Any, ...]  # objects that keep the memory an engine may access: arrays, Regions


class HeldMemory:
    """Keeps the memory of each operation alive until its engines have released it.

    Has no lock: the caller holds that of the table of operations.
    """

    def __init__(self) -> None:
        self.releases = 0  # number of operations whose memory was released
        self.held: dict[int, Memory] = {}
        self._works: dict[int, weakref.ref[Work[Any]]] = {}  # of each operation in `held`
        # Works with a copy of their result. No WeakValueDictionary: its methods are Python's.
        self._copied: dict[weakref.ref[Work[Any]], None] = {}

    def __contains__(self, number: int) -> bool:
        return number in self.held

    def __len__(self) -> int:
        return len(self.held)

    def within(self, numbers: Collection[int]) -> bool:
        """Whether each operation whose memory is held is one of `numbers`."""
        return all(number in numbers for number in self.held)

    def hold(self, number: int, work: Work[Any], memory: Memory) -> None:
        """Keep the memory of an operation that is about to be submitted."""
        self.held[number], self._works[number] = memory, weakref.ref(work)
        if work.copied:
            self._copied[weakref.ref(work, self._copied.pop)] = None

    def forget(self, number: int) -> None:
        """Drop the memory of an operation that was not submitted."""
        self.held.pop(number, None)
        self._works.pop(number, None)

    def release(self, number: int) -> None:
        """Drop the memory of an operation, and tell its work. Idempotent."""
        if self.held.pop(number, None) is not None:
            self.releases += 1
            work = self._works.pop(number)()
            if work is not None:
                work.released = True

    def ended(self) -> list[Work[Any]]:
        """The works with an outcome whose results may still lie in the arena."""
        works = [reference() for reference in tuple(self._copied)]
        return [work for work in works if work is not None and work.ended]

    def clear(self) -> None:
        """Drop all memory: the arena makes no new allocations."""
        self.held.clear()
        self._works.clear()
