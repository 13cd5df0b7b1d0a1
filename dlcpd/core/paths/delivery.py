"""How fast a path delivers, as the receiver's clock saw it.

A sender that measures on its own clock sees how its acknowledgements came; the stamps of the
other kernel say how the data came. As in BBR (draft-cheng-iccrg-delivery-rate), what a sender
with too little to send measures can only raise the estimate.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

ROUNDS: Final = 10  # remembered: as BBR does, so that pauses of a host do not look like its link
STANDING_ROUNDS: Final = 4  # while a queue stands; two thirds of the drops where eight hosts meet
LEAST_SAMPLE: Final = 4  # packets; the spacing of fewer says little
_WRAP: Final = 4294.967296  # seconds after which a peer's 32 bits of microseconds begin anew


@dataclass(slots=True)
class DeliveryRate:
    """Feed it every CREDIT; call `end_round` once per round trip."""

    rate: float = 0.0  # packets per second: the second best of the last rounds, since the very
    # best may be a stamp that was late; 0 = no sample yet
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=ROUNDS))
    _seen: int = 0  # packets that have arrived since the last round's end
    _since: float | None = None  # when it ended: seconds of the peer's clock

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return bool(self._rates)

    def on_arrivals(self, packets: int) -> None:
        """So many more have arrived."""
        self._seen += packets

    def end_round(
        self, at: float | None, *, dry: bool = False, empty: bool = False, standing: bool = False
    ) -> None:
        """The newest packet came at `at`, seconds of the peer's clock, None if it is not known;
        `dry`: the sender did not always have something to send, so the path may have been idle;
        `empty`: no queue stood and nothing was lost, so the hosts set the pace, and the path
        delivers no less than was known; `standing`: there was a queue all the time, so the link
        was busy, and old rounds may tell of a larger part of it."""
        if at is not None and self._since is not None and self._seen >= LEAST_SAMPLE:
            took = (at - self._since) % _WRAP
            rate = self._seen / took if took > 0 else 0.0
            if empty:
                rate = max(rate, self.rate)
            if rate and (not dry or rate > self.rate):
                self._rates.append(rate)
            while standing and len(self._rates) > STANDING_ROUNDS:
                self._rates.popleft()
            self.rate = sorted(self._rates)[-2:][0] if self._rates else 0.0
        self._since, self._seen = at, 0

    def assume(self, rate: float) -> None:
        """Nothing has been measured; take `rate`, packets per second, until something is."""
        self._rates.append(rate)
        self.rate = rate

    def forget(self) -> None:
        """What was measured is old."""
        self._rates.clear()
        self.rate = 0.0
        self._since = None
