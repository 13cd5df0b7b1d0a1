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
        self._held: dict[int, Memory] = {}
        self._uncopied: weakref.WeakValueDictionary[int, Work[Any]] = weakref.WeakValueDictionary()

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def __len__(self) -> int:
        return len(self._held)

    def within(self, numbers: Collection[int]) -> bool:
        """Whether each operation whose memory is held is one of `numbers`."""
        return all(number in numbers for number in self._held)

    def hold(self, number: int, work: Work[Any], memory: Memory) -> None:
        """Keep the memory of an operation that is about to be submitted."""
        self._held[number], self._uncopied[number] = memory, work

    def forget(self, number: int) -> None:
        """Drop the memory of an operation that was not submitted."""
        self._held.pop(number, None)

    def release(self, number: int) -> None:
        """Drop the memory of an operation, and tell its work. Idempotent."""
        if self._held.pop(number, None) is not None:
            self.releases += 1
            work = self._uncopied.get(number)
            if work is not None:
                work.released = True

    def ended(self) -> list[Work[Any]]:
        """The works with an outcome whose results may still lie in the arena."""
        return [work for work in self._uncopied.values() if work.ended]

    def clear(self) -> None:
        """Drop all memory: the arena makes no new allocations."""
        self._held.clear()
