"""One call whose tensor is sent in several operations, each a range of its elements.

So one part is on the network while the next one is copied from the device and the previous one is
copied back.
"""

import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from dlcp_client.arena.blocks import A, Block
from dlcp_client.operations.parts import total
from dlcp_client.operations.work import Progress, Work
from dlcpd.contract.messages import Completed

if TYPE_CHECKING:
    from torch.futures import Future

T = TypeVar("T")


class Piece(Work[A]):
    """One of the operations. Its result is copied to the device as soon as it arrives."""

    on_arrived: Callable[[], None]  # set before the submission

    def complete(self) -> None:
        if self.stats is not None:
            self.copy_out()
        self.on_arrived()


class Joined(Work[A]):
    """Ends with the last of its pieces. The code that submits the pieces watches them."""

    def __init__(self, progress: Progress, block: Block[A], pieces: Sequence[Piece[A]]) -> None:
        super().__init__(
            progress,
            block=block,
            label=pieces[0].label,
            expires=max(piece.expires for piece in pieces),
        )
        self.pieces = tuple(pieces)
        self._missing = len(pieces)
        for piece in pieces:
            piece.on_arrived = self._arrived

    @property
    def ended(self) -> bool:
        return all(piece.ended for piece in self.pieces)

    @property
    def stats(self) -> Completed | None:
        found = [piece.stats for piece in self.pieces]
        whole = [one for one in found if one is not None]
        return reduce(total, whole) if len(whole) == len(found) else None

    @property
    def source(self) -> int:
        return self.pieces[0].source

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        for piece in self.pieces:
            piece.wait(None if until is None else max(0.0, until - time.monotonic()))
        return True

    def done(self) -> bool:
        return all([piece.done() for piece in self.pieces])  # each piece must follow its copy

    def then(self, callback: Callable[[A], T]) -> "Future[T]":
        def run(_: "Future[None]") -> T:
            self.arrive()
            return callback(self.tensor)

        with self._copying:
            first = self._base is None
            base = self._base = self._base or self._new_future()
            over = first and not self._missing
        chained = base.then(run)
        if over:
            base.set_result(None)
        return chained

    def arrive(self) -> None:
        for piece in self.pieces:
            piece.arrive()

    def _arrived(self) -> None:
        """A piece has ended, maybe without a result. Runs on a thread whose callbacks may wait."""
        with self._copying:
            self._missing -= 1
            base = None if self._missing else self._base
        if base is not None:
            base.set_result(None)
