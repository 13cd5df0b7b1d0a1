"""What the ranks of a job need of the store by which they find each other."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol

LOOKS: Final = (0.002, 0.05)  # seconds between looks at a store: at first, and at most


class Store(Protocol):
    """As torch.distributed's stores, of which each will do; so will a `FileStore` of ours.

    A key that is there stays. Errors of a store are RuntimeErrors, or errors of dlcpd.
    """

    def set(self, key: str, value: str, /) -> None:
        """Write."""

    def get(self, key: str, /) -> bytes:
        """Read what is there."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a count, which begins at 0; the new one. Nobody else's `add` comes in between."""

    def wait(self, keys: Any, timeout: timedelta, /) -> None:
        """Until all `keys` are there. Raises: RuntimeError after `timeout`."""

    def check(self, keys: Any, /) -> bool:
        """Whether all `keys` are there."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected`, or does not exist and "" is expected; what it holds
        then, or `expected` where it does not exist."""


def look_until(there: Callable[[], bool], timeout: timedelta, late: str) -> None:
    """`wait` of a store that can only be looked at. Raises: RuntimeError(late) after `timeout`."""
    over, (pause, longest) = time.monotonic() + timeout.total_seconds(), LOOKS
    while not there():
        left = over - time.monotonic()
        if left <= 0:
            raise RuntimeError(late)
        time.sleep(min(pause, left))
        pause = min(2 * pause, longest)
