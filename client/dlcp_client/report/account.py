"""Where a registration's steps, bytes and waits are added up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dlcp_client.report.totals import Totals
from dlcp_client.session import Session

MAX_LABELS: Final = 4096  # as many as a session adds up; DDP regroups its buckets once


class Account:
    """Of one model. `waits`: whether waits can be seen: those of kernels of a device cannot.

    Threads may call `waiting`; all else is of the training's own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.waits = True
        self.now: Final = clock  # seconds
        self.labels: dict[str, str] = {}  # by name of a bounded operation: the parameters in it
        self.on_step: list[Callable[[int], None]] = []  # called when so many steps are over
        self._adding = threading.Lock()
        self._steps = self._whole_steps = 0
        self._bytes = self._bounded_bytes = 0
        self._waited = self._whole = 0.0
        self._began: float | None = None

    def begin(self) -> None:
        """A step begins."""
        if self._began is not None:
            self._whole_steps += 1
            self._whole += self.now() - self._began
            for call in self.on_step:
                call(self._steps)
        self._steps += 1
        self._began = self.now()  # what was called is no part of a step

    def handed(self, size: int, *, bounded: bool = False) -> None:
        """`size` bytes of gradients go through dlcpd."""
        self._bytes += size
        if bounded:
            self._bounded_bytes += size

    def label(self, name: str, text: str) -> None:
        """Which parameters the bounded operations of a name are of."""
        if len(self.labels) < MAX_LABELS:
            self.labels[name] = text

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens inside is a wait for gradients, also where it fails."""
        began = self.now()
        try:
            yield
        finally:
            self.waited(self.now() - began)

    def waited(self, seconds: float) -> None:
        """The training stood still for so long."""
        with self._adding:
            self._waited += seconds

    def totals(self, session: Session | None) -> Totals:
        """All so far, with what `session` says of its operations."""
        own = (
            self._steps,
            self._bytes,
            self._bounded_bytes,
            self._waited,
            self._whole_steps,
            self._whole,
        )
        if session is None:
            return Totals(*own)
        return Totals(*own, session.ledger, session.bounded(self.labels))
