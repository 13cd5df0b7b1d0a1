"""The interface of the store through which a job's ranks find each other."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

LOOKS: Final = (0.002, 0.05)  # seconds between reads of a store: at first, and at most


class Store(Protocol):
    """The interface of torch.distributed's stores, which all qualify; so does a `FileStore`.

    A key that exists is never deleted. Errors of a store are RuntimeErrors, or errors of dlcpd.
    """

    def set(self, key: str, value: str, /) -> None:
        """Write."""

    def get(self, key: str, /) -> bytes:
        """Read an existing key."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, which begins at 0, atomically. Returns the new value."""

    def wait(self, keys: Any, timeout: timedelta, /) -> None:
        """Block until all `keys` exist. Raises: RuntimeError after `timeout`."""

    def check(self, keys: Any, /) -> bool:
        """Whether all `keys` exist."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected`, or if it does not exist and `expected` is "". Returns
        its new value, or `expected` if it does not exist."""


def look_until(there: Callable[[], bool], timeout: timedelta, late: str) -> None:
    """Poll `there` until it is true. Raises: RuntimeError(late) after `timeout`."""
    over, (pause, longest) = time.monotonic() + timeout.total_seconds(), LOOKS
    while not there():
        left = over - time.monotonic()
        if left <= 0:
            raise RuntimeError(late)
        time.sleep(min(pause, left))
        pause = min(2 * pause, longest)
