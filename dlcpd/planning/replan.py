"""When a running job gets a new plan: rates that stay changed, a rank that is gone, links unseen.

The caller measures, computes plans and has them adopted; this says when. Virtual time: every call
passes `now`, in seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

WINDOW: Final = 2.0  # seconds of a measurement; two of them outlast a burst of other traffic
CHANGED: Final = 0.25  # of a planned rate: probes are right within 15 %
LEAST_GAIN: Final = 1.10  # predicted speed of the new plan, of the present one on the new rates
LEAST_PAUSE: Final = 10.0  # seconds between two plans
MOST_PAUSE: Final = 640.0  # seconds: six doublings
CALM: Final = 3  # pauses without a new plan, after which the pause is short again
PROBE_EVERY: Final = 60.0  # seconds in which a link carries nothing to measure
PROBE_SECONDS: Final = 0.1  # of such a probe: 0.17 % of the time

Capacities = Mapping[str, int]  # bit/s by link, such as "host a out" or "rack 0 down"


class Decision(Enum):
    """The answer of the rule to a computed plan."""

    ADOPT = "adopt"
    SMALL_GAIN = "the predicted gain is below 10 %"
    TOO_SOON = "the last plan is too recent"


@dataclass
class ReplanRule:
    """Whether to compute and adopt a new plan. `planned`: rates that the present plan assumes."""

    planned: dict[str, int]
    pause: float = field(default=LEAST_PAUSE, init=False)  # seconds from a plan to the next
    _before: dict[str, int] = field(default_factory=dict, init=False)  # rates of the former plan
    _last: dict[str, int] = field(default_factory=dict, init=False)  # of the last window
    _gone: bool = field(default=False, init=False)  # a rank has left since the plan
    _adopted_at: float | None = field(default=None, init=False)
    _seen_at: dict[str, float] = field(default_factory=dict, init=False)  # by link, of its rate

    def __post_init__(self) -> None:
        self.planned = dict(self.planned)  # `gone` removes links

    def window(self, measured: Capacities, now: float) -> dict[str, int]:
        """A window ends. `measured`: capacities of links that had enough traffic to tell.

        Returns the rates to compute a plan for, or nothing. A link counts as changed if two windows
        in sequence are off the plan by CHANGED, to the same side, and agree with each other: a link
        that flaps gives windows that do not.
        """
        self._seen_at.update(dict.fromkeys(measured, now))
        changed = {
            link: (rate + self._last[link]) // 2
            for link, rate in measured.items()
            if link in self.planned and link in self._last and self._stays(link, rate)
        }
        self._last = dict(measured)
        if self._waits(now) or not (changed or self._gone):
            return {}
        return self.planned | changed

    def gone(self, links: Iterable[str]) -> None:
        """A rank is gone, and its links with it."""
        self._gone = True
        for link in links:
            for rates in (self.planned, self._before, self._last, self._seen_at):
                rates.pop(link, None)

    def decide(self, rates: Capacities, gain: float, now: float) -> Decision:
        """Whether to adopt the plan for `rates`. `gain`: its predicted speed, in units of that of
        the present plan on the same rates. After a rank is gone, any plan is better than none."""
        if self._waits(now) or (self._undoes(rates) and now < self._free_at(2 * self.pause)):
            return Decision.TOO_SOON
        if gain < LEAST_GAIN and not self._gone:
            return Decision.SMALL_GAIN
        return Decision.ADOPT

    def adopted(self, rates: Capacities, now: float) -> None:
        """All ranks use the plan for `rates`. One that undoes the former doubles the pause; a long
        time without plans makes it short again."""
        if self._undoes(rates):
            self.pause = min(2 * self.pause, MOST_PAUSE)
        elif self._adopted_at is not None and now > self._free_at(CALM * self.pause):
            self.pause = LEAST_PAUSE
        self._before, self.planned = self.planned, dict(rates)
        self._adopted_at, self._gone, self._last = now, False, {}

    def to_probe(self, now: float) -> list[str]:
        """Links that have shown no rate for PROBE_EVERY, each to be probed for PROBE_SECONDS. A
        link is named once in that time, whether its probe succeeds or not."""
        due = []
        for link in self.planned:
            if now - self._seen_at.setdefault(link, now) >= PROBE_EVERY:
                self._seen_at[link] = now
                due.append(link)
        return due

    def _stays(self, link: str, rate: int) -> bool:
        planned, before = self.planned[link], self._last[link]
        low, high = sorted((rate, before))
        aside = high <= planned * (1 - CHANGED) or low >= planned * (1 + CHANGED)
        return aside and high <= low * (1 + CHANGED)

    def _undoes(self, rates: Capacities) -> bool:
        """Whether these are the rates of the former plan again, and not those of the present."""
        return (
            rates.keys() == self._before.keys()
            and _near(rates, self._before)
            and not _near(rates, self.planned)
        )

    def _waits(self, now: float) -> bool:
        return now < self._free_at(self.pause)

    def _free_at(self, pause: float) -> float:
        return 0.0 if self._adopted_at is None else self._adopted_at + pause


def _near(rates: Capacities, others: Capacities) -> bool:
    return all(
        abs(rate - others.get(link, 0)) <= CHANGED * max(rate, others.get(link, 0))
        for link, rate in rates.items()
    )
