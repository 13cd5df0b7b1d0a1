"""The delivery rate of a path, on the receiver's clock.

The sender's clock shows how acknowledgements came; the time stamps of the other kernel show how the
data came. As in BBR (draft-cheng-iccrg-delivery-rate), an application-limited sample can only raise
the estimate.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

ROUNDS: Final = 10  # remembered: as in BBR, so that pauses of a host do not look like a slow link
STANDING_ROUNDS: Final = 4  # while a queue stands; two thirds of the drops where eight hosts meet
LEAST_SAMPLE: Final = 4  # packets; the spacing of fewer says little
_WRAP: Final = 4294.967296  # seconds after which 32 bits of microseconds wrap


@dataclass
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
        """`packets` more have arrived."""
        self._seen += packets

    def end_round(
        self, at: float | None, *, dry: bool = False, empty: bool = False, standing: bool = False
    ) -> None:
        """End a round; its newest packet came at `at`, seconds of the peer's clock, None: unknown.
        `dry`: the sender was application-limited, so the path may have been idle. `empty`: no queue
        and no loss, so the hosts limited the rate, and the path delivers no less than before.
        `standing`: a queue all the time, so the link was busy, and old rounds may be of a larger
        share of it."""
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
        """Use `rate`, packets per second, until there is a sample."""
        self._rates.append(rate)
        self.rate = rate

    def forget(self) -> None:
        """Forget all samples: they are out of date."""
        self._rates.clear()
        self.rate = 0.0
        self._since = None
