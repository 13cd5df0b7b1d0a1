"""The interface that staging needs of an accelerator. `cuda` implements it, and `fake` for tests.

Terms are those of CUDA. A stream is a queue of work that the device does in order. The *current*
stream of a thread holds the kernels of a training; copies have two other streams, out (to the host)
and in. An event is a point in a stream: a stream or a thread can wait for it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class CannotPin(Exception):  # handled by Pinned alone
    """The device refuses to lock memory; the text says why."""


class Event(Protocol):
    """A point in the order of a stream."""

    def wait(self) -> None:
        """Block this thread, without the GIL, until all earlier work is done.

        Raises: the error that the device reports.
        """

    def done(self) -> bool:
        """Whether all earlier work is done; does not block."""


class Device(Protocol):
    """One accelerator. Thread-safe."""

    @property
    def name(self) -> str:
        """Name for errors, such as "cuda:0"."""

    def mark(self) -> Event:
        """The end of the work that this thread has put on its current stream so far."""

    def follow(self, event: Any) -> None:
        """Later work of this thread on its current stream begins after `event`."""

    def fetch(self, host: memoryview, array: Any, after: Any, cuts: Sequence[int]) -> Event:
        """Begin to copy a dense array of the device to `host`, on the stream out, after `after`.

        `cuts`: offsets in `host`, in bytes, ascending, at which another piece of locked memory
        begins; no single transfer may cross them. The caller does not touch either memory until the
        returned event. The call blocks during the copy if `host` is not locked.
        """

    def deliver(self, array: Any, host: memoryview, after: Any, cuts: Sequence[int]) -> Event:
        """The reverse of `fetch`, on the stream in."""

    def aside(self, after: Any) -> AbstractContextManager[None]:
        """Inside, this thread's current stream is one without kernels of a training; it continues
        after `after`; None: at once."""

    def future(self) -> Any:
        """A torch Future whose value may be on this device: a waiter blocks its stream only."""

    def pin(self, address: int, size: int) -> None:
        """Page-lock memory of this process, for all devices of this kind. Raises: CannotPin."""

    def unpin(self, address: int) -> None:
        """Unlock it. No copy from or to it may be in progress."""
