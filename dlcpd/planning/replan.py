"""When a running job gets a new plan: rates that stay changed, also of links without traffic.

The caller measures, computes plans and has them adopted; this says when. Virtual time: every call
passes `now`, in seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TICK: Final = 0.5  # seconds from one measurement to the next
WINDOW: Final = 1.5  # seconds of each; two of them outlast a burst of other traffic
CHANGED: Final = 0.25  # of a planned rate: probes are right within 15 %
LEAST_GAIN: Final = 1.10  # predicted speed of the new plan, of the present one on the new rates
RESTORED_GAIN: Final = 1.02  # the same of the former plan, on the rates that it had
LEAST_PAUSE: Final = 10.0  # seconds between two plans
MOST_PAUSE: Final = 640.0  # seconds: six doublings
FLAPS: Final = 3  # pauses until a link that the last plan changed can have another one
CALM: Final = 3  # pauses without a new plan, after which the pause is short again
PROBE_EVERY: Final = 60.0  # seconds in which a link carries nothing to measure
PROBE_SECONDS: Final = 0.1  # of such a probe: 0.17 % of the time
LOOK_EVERY: Final = 2.0  # seconds between the first two of a link that is faster than planned;
# then doubled, up to PROBE_EVERY
LOOK_SECONDS: Final = 0.2  # of such a probe: the job's own data are in its way

Capacities = Mapping[str, int]  # bit/s by link, such as "host a out" or "rack 0 down"


class Decision(Enum):
    """The answer of the rule to a computed plan."""

    ADOPT = "adopt"
    SMALL_GAIN = "the predicted gain is too small"
    TOO_SOON = "the last plan is too recent"


@dataclass
class ReplanRule:
    """Whether to compute and adopt a new plan. `planned`: rates that the present plan assumes."""

    planned: dict[str, int]
    pause: float = field(default=LEAST_PAUSE, init=False)  # seconds from a plan to the next
    _before: dict[str, int] = field(default_factory=dict, init=False)  # rates of the former plan
    _recent: dict[str, list[tuple[float, int]]] = field(default_factory=dict, init=False)
    _adopted_at: float | None = field(default=None, init=False)
    _seen_at: dict[str, float] = field(default_factory=dict, init=False)  # by link, of its rate
    _raised: dict[str, list[int]] = field(default_factory=dict, init=False)  # by probes
    _faster: set[str] = field(default_factory=set, init=False)  # than planned, in the last window
    _look_at: dict[str, float] = field(default_factory=dict, init=False)  # by those: the next probe
    _look_pause: dict[str, float] = field(default_factory=dict, init=False)  # seconds after that

    def __post_init__(self) -> None:
        self.planned = dict(self.planned)  # `gone` removes links

    def window(self, measured: Capacities, now: float) -> dict[str, int]:
        """A window ends; another ends TICK later. `measured`: capacities of links that had enough
        traffic to tell.

        Returns the rates to compute a plan for, or nothing. A link counts as changed if two windows
        in sequence, and all that lie between them, are off the plan by CHANGED, to the same side,
        and agree with each other. A window without a rate says nothing, and changes nothing.
        """
        for link in measured:
            self._seen_at[link] = now
        self._faster = {link for link, rate in measured.items() if self._is_faster(link, rate)}
        for link in measured.keys() - self._faster:
            for state in (self._raised, self._look_at, self._look_pause):
                state.pop(link, None)
        changed = dict[str, int]()
        for link, rate in measured.items():
            if link in self.planned:
                rates = self._sequence(link, rate, now)
                if rates and _stays(self.planned[link], rates):
                    changed[link] = sum(rates) // len(rates)
        changed |= {link: min(rates) for link, rates in self._raised.items() if len(rates) > 1}
        if not changed or self._waits(now):
            return {}
        wanted = self.planned | changed
        return self._before if self._undoes(wanted) else wanted  # noise is the difference

    def gone(self, links: Iterable[str]) -> None:
        """A host has left, and its links with it. That needs no new plan: the trees of a group are
        those of its own hosts."""
        for link in links:
            for rates in (self.planned, self._before, self._recent, self._seen_at, self._raised):
                rates.pop(link, None)
            self._look_at.pop(link, None)
            self._faster.discard(link)

    def decide(self, rates: Capacities, gain: float, now: float) -> Decision:
        """Whether to adopt the plan for `rates`. `gain`: its predicted speed, in units of that of
        the present plan on the same rates. A plan that undoes the last needs no more than to be
        faster: it is the one that the job had."""
        last, next_ = _changed(self._before, self.planned), _changed(self.planned, rates)
        if now < self._free_at(self.pause * (FLAPS if last & next_ else 1)):
            return Decision.TOO_SOON
        if gain < (RESTORED_GAIN if self._undoes(rates) else LEAST_GAIN):
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
        self._adopted_at, self._recent, self._raised, self._faster = now, {}, {}, set()
        self._look_at, self._look_pause = {}, {}

    def refused(self, now: float) -> None:
        """Some rank keeps the present plan: the next offer waits for a pause, too."""
        self._adopted_at = now

    def to_probe(self, now: float) -> list[str]:
        """Links to be probed for PROBE_SECONDS: those that have shown no rate for PROBE_EVERY, once
        more soon where the last probe found a change, and those that are faster than planned, whose
        traffic does not show how fast. `probed` gets the result; a link is named once in that time,
        whether its probe succeeds or not."""
        due = []
        for link in self.planned:
            again = len(self._raised.get(link, ())) == 1
            if link in self._faster:
                again = not self._waits(now) and now >= self._look_at.get(link, now)
                if again:
                    pause = self._look_pause.get(link, LOOK_EVERY)
                    self._look_at[link] = now + pause
                    self._look_pause[link] = min(2 * pause, PROBE_EVERY)
            if again or now - self._seen_at.setdefault(link, now) >= PROBE_EVERY:
                self._seen_at[link] = now
                due.append(link)
        return due

    def probed(self, found: Capacities) -> None:
        """Rates of probes. A link carries at least as much, and perhaps more: its partner, or other
        traffic, may be the limit. So a rate only tells that a link is faster than planned; the next
        window returns it if a second probe, or the traffic, says so, too."""
        for link, rate in found.items():
            rates = self._raised.pop(link, [])
            if self._is_faster(link, rate):
                self._raised[link] = [*([rate] if link in self._faster else rates), rate][-2:]

    def _is_faster(self, link: str, rate: int) -> bool:
        return rate >= self.planned.get(link, rate) * (1 + CHANGED)

    def _sequence(self, link: str, rate: int, now: float) -> list[int]:
        """Rates of the windows of a link from that which ended when this one began; none: there is
        no such window, or it is too old."""
        rows = [*self._recent.get(link, ()), (now, rate)]
        first = max((at for at, _ in rows if at <= now - WINDOW), default=now)
        self._recent[link] = rows = [row for row in rows if row[0] >= min(first, now - WINDOW)]
        return [] if not now - 2 * WINDOW <= first < now else [rate for _, rate in rows]

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


def _stays(planned: int, rates: Sequence[int]) -> bool:
    low, high = min(rates), max(rates)
    aside = high <= planned * (1 - CHANGED) or low >= planned * (1 + CHANGED)
    return aside and high <= low * (1 + CHANGED)


def _changed(rates: Capacities, others: Capacities) -> set[str]:
    """Hosts, or racks, of links whose rates differ."""
    links = rates.keys() & others.keys()
    return {link.rpartition(" ")[0] for link in links if rates[link] != others[link]}


def _near(rates: Capacities, others: Capacities) -> bool:
    return all(
        abs(rate - others.get(link, 0)) <= CHANGED * max(rate, others.get(link, 0))
        for link, rate in rates.items()
    )
