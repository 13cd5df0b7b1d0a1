"""All paths of one flow: the choice for the next burst, silent paths, what the peer credits.

Rules of a single path are in `path` and `space`. Spraying balances the load: of the paths that have
room, the one whose route carried least takes the next burst, so links that are not the bottleneck
carry equal shares; where windows limit, a slow or lossy path has room less often and takes less.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final, Self

from dlcpd.core.paths.health import ALARM_LOSS, PathHealth, PathState
from dlcpd.core.paths.link_rate import LinkPart
from dlcpd.core.paths.path import PathReceiver, PathSender
from dlcpd.core.paths.receiving import ReceivingPaths
from dlcpd.core.paths.routes import Routes
from dlcpd.core.paths.rtt import LONG
from dlcpd.core.paths.space import SpaceSender
from dlcpd.core.wire.control import SpaceCredit

SPRAY_QUANTUM: Final = 180  # datagrams sent on one path before the next is asked: 4 GSO bursts
STALLS_BEFORE_DOWN: Final = 3  # checks, each with a ping: one or two may be lost
CONTROL: Final = 0  # traffic class of control datagrams
LOSS_WEIGHT: Final = 40.0  # 5 % more loss than the best path: a third of its share
MAX_WEIGHT: Final = 19.0  # a path that works keeps at least a twentieth, to measure its loss
LOSSY: Final = 1e-3  # fraction; beyond it, single datagrams are lost too often to rely on one
MOST_SKEW: Final = 50e-3  # seconds; a queue of 190 KB at 30 Mb/s
LOAD_MEMORY: Final = 1 << 16  # datagrams after which old load counts half


@dataclass(eq=False)
class Paths:
    """By index. A peer may name indices that do not exist."""

    tx: list[PathSender]
    rx: ReceivingPaths
    routes: Routes = field(init=False)
    health: list[PathHealth] = field(init=False)  # by path
    full: Collection[int] = ()  # paths of this host whose sockets are full now
    _route: list[int] = field(init=False)  # by path: those with equal numbers share their links
    carriers: list[int] = field(init=False)  # paths that data are sent on: one per route
    _told_down: set[int] = field(default_factory=set)  # paths that were reported down
    cover: float = 0.0  # seconds of arrivals that the slowest path needs in flight; 0 = unknown
    quickest: float = 0.0  # seconds, the minimum RTT of the slowest path; 0 = unknown
    queue: float = inf  # seconds that data in flight wait on the best path; infinite: none is
    _load: list[float] = field(init=False)  # by route: datagrams, old ones count less
    _random: Random = field(default_factory=lambda: Random(0))  # noqa: S311  # not for security

    def __post_init__(self) -> None:
        self.routes = Routes(len(self.tx))
        self.health = [PathHealth() for _ in self.tx]
        self.regroup()

    @classmethod
    def new(
        cls,
        count: int,
        *,
        congestion_control: bool = True,
        alarm_loss: float = ALARM_LOSS,
        seed: int = 0,
        full: Collection[int] = (),
        link: LinkPart | None = None,
    ) -> Self:
        """`count` unused paths. `seed`: different for each flow of each host, or all of them choose
        the same random paths. `full`: a set that io keeps up to date."""
        link = link or LinkPart()
        made = cls(
            [PathSender(1 / count, congestion_control, link=link) for _ in range(count)],
            ReceivingPaths([PathReceiver() for _ in range(count)]),
        )
        made.health = [PathHealth(alarm_loss) for _ in range(count)]
        made._random = Random(seed)  # noqa: S311  # not for security
        made.full = full
        return made

    def __len__(self) -> int:
        return len(self.tx)

    def stay_here(self) -> None:
        """They do not leave this host, so no port of a switch limits them. Call it before use."""
        for path in self.tx:
            path.port = False

    def space(self, path: int, traffic_class: int) -> SpaceSender:
        """The space of a class on a path."""
        sender = self.tx[path]
        return sender.space(traffic_class)

    def in_flight(self, traffic_class: int | None = None) -> int:
        """Datagrams in flight on all paths; with a class, only those of it and of more urgent ones:
        datagrams in less urgent queues do not delay it."""
        total = 0
        for path in self.tx:
            for number, space in path.spaces.items():
                if traffic_class is None or number <= traffic_class:
                    total += space.sent - space.acked
        return total

    @property
    def acked(self) -> int:
        """Changes whenever the peer credits packets."""
        return sum(space.acked for path in self.tx for space in path.spaces.values())

    def timeout(self, traffic_class: int, attempt: int = 0) -> float:
        """Seconds to wait for an answer on any path."""
        if len(self.tx) == 1:
            return self.tx[0].rtt(traffic_class).timeout(attempt)
        return max([path.rtt(traffic_class).timeout(attempt) for path in self.tx])

    def reordering(self, traffic_class: int) -> float:
        """Seconds of quiet after which a hole counts as a loss."""
        if len(self.tx) == 1:
            return self.tx[0].rtt(traffic_class).reordering
        rtts = [path.rtt(traffic_class) for path in self.tx]
        known = [rtt.smoothed for rtt in rtts if rtt.measured]
        skew = max(known) - min(known) if known else 0.0  # all of it may lie on the forward path
        return max(*(rtt.reordering for rtt in rtts), min(1.5 * skew, MOST_SKEW))

    @property
    def is_long(self) -> bool:
        """Whether a lost answer costs far more time than the answer sent again: the minimum RTT of
        all paths is long."""
        least = inf
        for path in self.tx:
            for space in path.spaces.values():
                least = min(least, space.rtt.minimum)
        return LONG <= least < inf

    @property
    def is_lossy(self) -> bool:
        """Whether the peer has lost more than LOSSY of the datagrams sent to it."""
        return sum([path.lost for path in self.tx]) > LOSSY * self.acked

    def pick(self, traffic_class: int, run: int, credit: int, now: float) -> tuple[int, int, int]:
        """The path for the next burst of a class, the datagrams that its window and pace let out,
        and how many make a burst worth its system call. `run`: datagrams to send; `credit`:
        datagrams that the peer takes in all. Prefers paths with room for a burst, and takes none
        whose socket is full."""
        if len(self.tx) == 1 and not self.full:
            sender = self.tx[0]
            space = sender.space(traffic_class)
            return 0, space.room(now), min(run, space.worthwhile(credit))
        offers = []
        for index in self._open_carriers:
            sender = self.tx[index]
            space = sender.space(traffic_class)
            enough = min(run, space.worthwhile(credit), SPRAY_QUANTUM)
            offers.append((index, min(space.room(now), SPRAY_QUANTUM), enough))
        return self._best(offers) if offers else (self.carriers[0], 0, 1)

    def _best(self, offers: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        roomy = [offer for offer in offers if offer[1] >= offer[2]]
        if roomy:
            return min(
                roomy,
                key=lambda offer: (
                    self.tx[offer[0]].suspect,
                    self._load[self._route[offer[0]]],
                    -offer[1],
                ),
            )
        return max(offers, key=lambda offer: offer[1])

    @property
    def _open_carriers(self) -> list[int]:
        if not self.full:
            return self.carriers
        return [index for index in self.carriers if index not in self.full]

    def paced_until(self, traffic_class: int) -> float | None:
        """When the pace of some path lets a burst of the class out; None: windows are full."""
        spaces = [self.tx[index].space(traffic_class) for index in self._open_carriers]
        return min((s.congestion.ready_at() for s in spaces if s.window_room > 0), default=None)

    def _choose(self) -> None:
        """The first path of each route that is up carries its data: one window and one burst per
        route are better than several that share its links. If no path is up, all are tried."""
        chosen = {
            route: path
            for path, route in reversed(list(enumerate(self._route)))
            if self.tx[path].up
        }
        self.carriers = sorted(chosen.values()) or list(range(len(self.tx)))
        for path in self.tx:
            path.set_share(1 / max(len(self.carriers), 1))

    def on_sent(self, path: int, datagrams: int) -> None:
        """A burst left on `path`. It weighs more on a path that loses more than the best."""
        if len(self.tx) == 1:
            return
        excess = self.health[path].loss - min([health.loss for health in self.health])
        self._load[self._route[path]] += datagrams * (1 + min(excess * LOSS_WEIGHT, MAX_WEIGHT))
        if sum(self._load) > LOAD_MEMORY:
            self._load = [load / 2 for load in self._load]

    def regroup(self) -> None:
        """Regroup paths after a change of `routes`, or when a path is back."""
        self._route = self.routes.groups()
        self._load = [0.0] * len(self.tx)
        self._choose()

    @property
    def distinct(self) -> int:
        """Routes that the paths reach, as far as their routers answered."""
        return len(set(self._route))

    def for_control(self, attempt: int) -> int:
        """The path with the shortest round trip; the others in turn for later attempts, since the
        best one may just have died. Avoids full sockets, which would drop the datagram."""
        if len(self.carriers) == 1:  # the usual case, and asked for every control datagram
            return self.carriers[0]
        able = self._open_carriers or self.carriers
        order = sorted([(self.tx[p].suspect, self.tx[p].smoothed_rtt, p) for p in able])
        return order[attempt % len(able)][2]

    def for_credit(self) -> int:
        """A random route. The return route may differ from the forward one, and the next CREDIT
        repeats what a lost one said. Not in turn: the peer's bursts take turns as well, so credits
        of the same paths would wait in the same queues, and those paths would carry less."""
        carriers = self._open_carriers or self.carriers
        return carriers[0] if len(carriers) == 1 else self._random.choice(carriers)

    def silent(self) -> list[int]:
        """Paths that owe an answer since the last call; to be pinged."""
        return [index for index, path in enumerate(self.tx) if path.check()]

    def demote(self, silent: list[int]) -> list[int]:
        """Take down paths that have been silent for STALLS_BEFORE_DOWN checks while others answer,
        and all paths that share their routes. Returns the silent ones taken down."""
        if len(silent) == len(self.tx):
            return []
        dead = [
            index
            for index in silent
            if self.tx[index].up and self.tx[index].stalls >= STALLS_BEFORE_DOWN
        ]
        routes = {self._route[index] for index in dead}
        alike = [index for index, route in enumerate(self._route) if route in routes]
        for index in alike:  # they share the link that died
            self.tx[index].demote()
        if dead:
            self._choose()
        self._told_down |= set(dead)
        return dead

    def on_credit(
        self, rows: Iterable[SpaceCredit], now: float
    ) -> tuple[list[tuple[int, PathState]], bool]:
        """Take in the rows of a CREDIT. Returns changes of path states, and whether the rows show
        that the peer lives (see SpaceSender.is_answer)."""
        news, alive = list[tuple[int, PathState]](), False
        for row in rows:
            path = self.tx[row.path] if row.path < len(self.tx) else None
            space = path.spaces.get(row.traffic_class) if path else None
            if path is None or space is None:
                continue
            if answer := space.is_answer(row, now):
                alive = True
                news += self._on_answer(row.path, path)
            space.on_credit(row, now, answer=answer)
            if verdict := self.health[row.path].observe(path.acked, path.lost):
                news.append((row.path, verdict))
        self.cover = max([path.cover for path in self.tx])
        self.quickest = max([path.quickest for path in self.tx])
        self.queue = min([path.queue for path in self.tx])
        return news, alive

    def _on_answer(self, index: int, path: PathSender) -> list[tuple[int, PathState]]:
        was_down = not path.up
        path.heard()
        if was_down:
            self.regroup()  # resets loads: it does not catch up on the time when it was down
            if index in self._told_down:
                self._told_down.discard(index)
                return [(index, PathState.UP)]
        return []
