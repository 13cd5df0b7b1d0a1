"""A part of a store, under a prefix."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from dlcp_client.job.store import Store


@dataclass(frozen=True, slots=True)
class PrefixedStore:
    """A Store whose keys are those of another one with `prefix`, as torch's PrefixStore."""

    store: Store
    prefix: str

    def set(self, key: str, value: str, /) -> None:
        """Write."""
        self.store.set(self._key(key), value)

    def get(self, key: str, /) -> bytes:
        """Read an existing key."""
        return self.store.get(self._key(key))

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, which begins at 0. Returns the new value."""
        return self.store.add(self._key(key), amount)

    def wait(self, keys: Sequence[str], timeout: timedelta, /) -> None:
        """Block until all `keys` exist."""
        self.store.wait([self._key(key) for key in keys], timeout)

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all `keys` exist."""
        return self.store.check([self._key(key) for key in keys])

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected` or does not exist. Returns its new value."""
        return self.store.compare_set(self._key(key), expected, desired)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"
