"""Totals of a registration's steps, bytes and waits."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from dlcp_client.report.exchange_times import ExchangeTimes
from dlcp_client.report.totals import Totals
from dlcp_client.session import Session

MAX_LABELS: Final = 4096  # as many as a session keeps; DDP regroups its buckets once


class Account:
    """The totals of one model. `waits`: whether waits are measured; waits of device kernels cannot
    be.

    `waiting` is thread-safe; all else belongs to the training's thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.waits = True
        self.now: Final = clock  # seconds
        self.labels: dict[str, str] = {}  # by name of a bounded operation: the parameters in it
        self.on_step: list[Callable[[int], None]] = []  # called with the number of completed steps
        self.exchanges = ExchangeTimes()
        self._adding = threading.Lock()
        self._steps = self._whole_steps = 0
        self._bytes = self._bounded_bytes = 0
        self._waited = self._whole = 0.0
        self._began: float | None = None

    def begin(self) -> None:
        """Begin a step."""
        if self._began is not None:
            self._whole_steps += 1
            self._whole += self.now() - self._began
            for call in self.on_step:
                call(self._steps)
        self._steps += 1
        self._began = self.now()  # the callbacks are no part of a step

    def handed(self, size: int, *, bounded: bool = False) -> None:
        """Count `size` bytes of gradients that go through dlcpd."""
        self._bytes += size
        if bounded:
            self._bounded_bytes += size

    def label(self, name: str, text: str) -> None:
        """Name the parameters of the bounded operations called `name`."""
        if len(self.labels) < MAX_LABELS:
            self.labels[name] = text

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The time inside is a wait for gradients, also if it fails."""
        began = self.now()
        try:
            yield
        finally:
            self.waited(self.now() - began)

    def waited(self, seconds: float) -> None:
        """Count a wait of `seconds`."""
        with self._adding:
            self._waited += seconds

    def totals(self, session: Session | None) -> Totals:
        """All totals, with those of the operations of `session`."""
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
        bounded = session.bounded(self.labels)
        return Totals(*own, session.ledger, bounded, self.exchanges.compared())
