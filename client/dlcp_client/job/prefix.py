"""A part of a store, for a purpose of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from dlcp_client.job.store import Store


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A Store whose keys all begin with `prefix` in another one, as torch's PrefixStore."""

    store: Store
    prefix: str

    def set(self, key: str, value: str, /) -> None:
        """Write."""
        self.store.set(self._key(key), value)

    def get(self, key: str, /) -> bytes:
        """Read what is there."""
        return self.store.get(self._key(key))

    def add(self, key: str, amount: int, /) -> int:
        """Add to a count, which begins at 0; the new one."""
        return self.store.add(self._key(key), amount)

    def wait(self, keys: Sequence[str], timeout: timedelta, /) -> None:
        """Until all `keys` are there."""
        self.store.wait([self._key(key) for key in keys], timeout)

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all `keys` are there."""
        return self.store.check([self._key(key) for key in keys])

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected`, or does not exist; what it holds then."""
        return self.store.compare_set(self._key(key), expected, desired)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"
