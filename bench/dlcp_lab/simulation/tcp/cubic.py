"""CUBIC (RFC 9438), without HyStart++."""

import math
from dataclasses import dataclass
from typing import Final

from dlcp_lab.simulation.tcp.congestion import INITIAL, Ack

C: Final = 0.4  # segments per cubic second
BETA: Final = 0.7
FRIENDLY: Final = 3 * (1 - BETA) / (1 + BETA)  # segments per round trip, as Reno with this BETA
LEAST: Final = 2.0  # segments


@dataclass(slots=True)
class Cubic:
    """The window of one connection; as Linux by default, it is not paced."""

    window: float = INITIAL
    pace: float = math.inf
    _threshold: float = math.inf  # end of slow start
    _most: float = 0.0  # window before the last reduction
    _begun: float = 0.0  # seconds: start of this epoch of growth; 0: none
    _rises: float = 0.0  # seconds from there until the window is `_most` again
    _reno: float = 0.0  # window that Reno would have

    def on_ack(self, ack: Ack) -> None:
        """Grow, unless the application is the limit."""
        if ack.recovering or not ack.window_full:
            return
        if self.window < self._threshold:
            self.window = min(self.window + ack.acked, max(self._threshold, self.window))
            return
        if not self._begun:
            self._begin(ack.now)
        at = ack.now - self._begun + ack.least_round_trip
        target = C * (at - self._rises) ** 3 + self._most
        self._reno += FRIENDLY * ack.acked / self.window
        target = min(max(target, self.window), 1.5 * self.window)
        self.window += (target - self.window) * ack.acked / self.window
        self.window = max(self.window, self._reno)

    def on_loss(self, now: float) -> None:
        """Reduce. With fast convergence: a connection that lost earlier than last time yields."""
        del now
        converges = self.window < self._most
        self._most = self.window * (1 + BETA) / 2 if converges else self.window
        self._threshold = self.window = max(self.window * BETA, LEAST)
        self._begun = 0.0

    def on_timeout(self, now: float) -> None:
        """Start slowly, up to the reduced window."""
        self.on_loss(now)
        self.window = 1.0

    def on_idle(self, now: float) -> None:
        """The window may be out of date."""
        del now
        self.window = min(self.window, INITIAL)
        self._begun = 0.0

    def _begin(self, now: float) -> None:
        self._begun, self._reno = now, self.window
        self._most = max(self._most, self.window)
        self._rises = ((self._most - self.window) / C) ** (1 / 3)
