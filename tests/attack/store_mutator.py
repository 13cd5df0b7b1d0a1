"""A store that somebody else writes to: what is written to one key becomes something else.

Keys are enumerated by a run in which nothing is changed, so a new message is changed as well.
"""

import re
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from torch._C._distributed_c10d import HashStore

MIB: Final = 1 << 20
TEXTS: Final = ("deleted", "cut", "2 MB", "list", "number", "earlier", "exchanged")
COUNTS: Final = ("deleted", "zero", "huge", "garbage")
FIXED: Final = {"list": "[]", "number": "7", "zero": "0", "huge": str(10**9), "garbage": "x"}


class Change(NamedTuple):
    """What becomes of every value that is written to a key. `earlier`: values of another launch."""

    key: str = ""  # as `plain` has it
    kind: str = ""
    earlier: dict[str, str] = {}  # noqa: RUF012  # never written to


class Mutator:
    """A Store of one process, for all its ranks."""

    def __init__(self, change: Change = Change()) -> None:  # noqa: B008  # it is a constant
        self.store, self.change = HashStore(), change
        self.texts, self.counts = dict[str, str](), dict[str, int]()  # by key, as they were written
        self.changed = 0
        self.keys: list[str] = []  # of texts, in the order in which they were written
        self.stop = threading.Event()  # of what waits for no end of its own
        self._last: tuple[str, str] | None = None
        self._lock = threading.RLock()

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self.store.set(key, value)
            self._written(key, value)

    def get(self, key: str) -> bytes:
        return self.store.get(key)

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            count = int(self.store.add(key, amount))
            if amount:
                self.counts[plain(key)] = count
                self._change(key, str(count))
            return count

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        self.store.wait(list(keys), timeout)

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self.store.check(list(keys)))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._lock:
            absent = not self.store.check([key])
            found: bytes = self.store.compare_set(key, expected, desired)
            if absent and not expected:
                self._written(key, desired)
            return found

    def _written(self, key: str, value: str) -> None:
        self.texts[plain(key)] = value
        self.keys.append(key)
        self._change(key, value)
        self._last = (key, value)

    def _change(self, key: str, value: str) -> None:
        change = self.change
        if plain(key) != change.key:
            return
        self.changed += 1
        if change.kind == "deleted":
            self.store.delete_key(key)
        elif change.kind == "exchanged" and self._last:
            other, held = self._last
            self.store.set(key, held)
            self.store.set(other, value)
        elif (new := _new(change, plain(key), value)) is not None:
            self.store.set(key, new)

    def changes(self, earlier: dict[str, str]) -> list[Change]:
        """Each of every key that was written to in this run."""
        texts = [Change(key, kind, earlier) for key in self.texts for kind in TEXTS]
        return texts + [Change(key, kind) for key in self.counts for kind in COUNTS]


class Died(BaseException):
    """A rank is no more."""


class Mortal:
    """A store as one rank has it, which ends (`end` does not return) after its n-th write."""

    def __init__(self, store: Any, after: int, end: Callable[[], None]) -> None:
        self._store, self._left, self._end = store, after, end
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)
        self._wrote()

    def add(self, key: str, amount: int) -> int:
        count = int(self._store.add(key, amount))
        if amount:
            self._wrote()
        return count

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        found: bytes = self._store.compare_set(key, expected, desired)
        if not expected:
            self._wrote()
        return found

    def _wrote(self) -> None:
        self.writes += 1
        if self.writes == self._left:
            self._end()


def plain(key: str) -> str:
    """Without the names that a launch makes up."""
    return re.sub(r"[0-9a-f]{16,}", "*", key)


def _new(change: Change, key: str, value: str) -> str | None:
    if change.kind == "cut":
        return value[: len(value) // 2]
    if change.kind == "2 MB":
        return value + "x" * (2 * MIB)
    if change.kind == "earlier":
        return change.earlier.get(key)
    return FIXED.get(change.kind)
