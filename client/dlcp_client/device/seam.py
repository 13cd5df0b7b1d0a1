"""What staging needs of an accelerator, and no more. `cuda` implements it, and `fake` for tests.

Words are those of CUDA. A stream is a queue of work that the device does in order; the *current*
stream of a thread is where a training puts its kernels; copies have two streams of their own, out
(to the host) and in. An event is a point in a stream: a stream or a thread can wait for it.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class CannotPin(Exception):  # told to nobody but Pinned
    """The device refuses to lock memory; the text says why."""


class Event(Protocol):
    """A point in the order of a stream."""

    def wait(self) -> None:
        """Block this thread, without the interpreter's lock, until all before it is done.

        Raises: what the device reports.
        """

    def done(self) -> bool:
        """Whether all before it is done; does not block."""


class Device(Protocol):
    """One accelerator. Safe to use from threads."""

    @property
    def name(self) -> str:
        """For errors, as "cuda:0"."""

    def mark(self) -> Event:
        """The end of what this thread has put on its current stream so far."""

    def follow(self, event: Any) -> None:
        """What this thread puts on its current stream from now on begins after `event`."""

    def fetch(self, host: memoryview, array: Any, after: Any, cuts: Sequence[int]) -> Event:
        """Begin to copy a dense array of the device to `host`, on the stream out, after `after`.

        `cuts`: bytes of `host` at which another piece of locked memory begins, ascending: no
        single transfer may cross them. Both memories are left alone until the event that this
        returns. The call blocks while it copies where `host` is not locked.
        """

    def deliver(self, array: Any, host: memoryview, after: Any, cuts: Sequence[int]) -> Event:
        """The reverse of `fetch`, on the stream in."""

    def aside(self, after: Any) -> AbstractContextManager[None]:
        """Inside, this thread's current stream is one that no kernel of a training is on; it goes
        on after `after`, None: at once."""

    def future(self) -> Any:
        """A torch Future whose value may be on this device: who waits for it waits on the current
        stream, not in this process."""

    def pin(self, address: int, size: int) -> None:
        """Lock memory of this process in place, for all devices of this kind. Raises: CannotPin."""

    def unpin(self, address: int) -> None:
        """Undo it. No copy from or to it is under way."""
