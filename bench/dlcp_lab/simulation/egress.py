"""A port of a simulated switch or host: queues, and the wire that they send into."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.losses import Losses, Mask
from dlcp_lab.simulation.switch import SHARES, SharedBuffer, SwitchRules
from dlcp_lab.simulation.train import Train
from dlcpd.contract.traffic import DROP_PRECEDENCES

LAST_PRECEDENCE = 2  # not ECN-capable: a switch drops it where it would mark others


@dataclass(frozen=True)
class Wire:
    """One direction of a cable."""

    rate_bps: float
    delay: float = 1e-6  # seconds, one way
    loss: float = 0.0  # fraction of the datagrams
    burst: float = 1.0  # datagrams that are lost in sequence, on average; 1: each by itself


@dataclass(slots=True)
class _Queue:
    """Trains that wait, and the bytes that arrive and leave."""

    waiting: deque[Train] = field(default_factory=deque)
    held: float = 0.0  # bytes of the trains that wait, also of datagrams that have yet to arrive
    # Trains of which a part may have yet to arrive: from when until when, and bytes.
    arriving: list[tuple[float, float, float]] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class Egress:
    """A port. `rules` None: a host's own, whose queue is not limited.

    A train takes the wire as a whole, so a more urgent one waits for at most the rest of it.
    """

    name: str
    wire: Wire
    calendar: Calendar
    losses: Losses
    deliver: Callable[[Train], None]  # a train has reached its host
    rules: SwitchRules | None = None
    shared: SharedBuffer | None = None
    free_at: float = 0.0  # seconds, when the wire is idle
    sent: int = 0  # datagrams
    sent_bytes: float = 0.0  # on the wire, also those that it loses
    marked: int = 0
    trimmed: int = 0
    dropped: dict[int, int] = field(default_factory=dict)  # by tag
    most_held: float = 0.0  # bytes
    _queues: dict[int, _Queue] = field(default_factory=dict)
    _waiting: int = 0  # trains
    _due: bool = False  # an event will serve the next train

    def accept(self, train: Train) -> None:
        """Take a train in, or the part of it for which there is room."""
        number = self.rules.queue(train) if self.rules else 0
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = _Queue()
        if self.rules is not None:
            admitted = self._admitted(train, queue, self.rules)
            if admitted is None:
                return
            train = admitted
            if train.last > max(train.first, self.calendar.now):
                rest = (train.count - 1) * train.size  # the first datagram has arrived
                queue.arriving.append((train.first, train.last, rest))
        if self.shared is not None:
            self.shared.used += train.bytes
        queue.held += train.bytes
        self.most_held = max(self.most_held, queue.held)
        queue.waiting.append(train)
        self._waiting += 1
        if self.free_at <= self.calendar.now and not self._due:
            self._serve()
        elif not self._due:
            self._due = True
            self.calendar.add(self.free_at, self._serve)

    # --- room -------------------------------------------------------------------------

    def _admitted(self, train: Train, queue: _Queue, rules: SwitchRules) -> Train | None:
        """The train without the datagrams that find no room, with its marks."""
        limit = rules.port_buffer
        if self.shared is not None:
            limit = min(limit, rules.alpha * self.shared.free)
        on_wire = max(self.free_at - self.calendar.now, 0.0) * self.wire.rate_bps / 8
        if train.bytes + queue.held + on_wire <= min(limit * min(SHARES), rules.mark):
            return train
        occupied = self._occupied(train, queue)
        keep, marks = np.ones(train.count, bool), np.zeros(train.count, bool)
        held = 0.0  # bytes of this train so far
        for at, tag in enumerate(train.tags.tolist()):
            found = occupied[at] + held
            if found + train.size > limit * rules.share(tag):
                keep[at] = False
                self.dropped[tag] = self.dropped.get(tag, 0) + 1
                continue
            held += train.size
            marks[at] = found >= rules.mark and tag % DROP_PRECEDENCES != LAST_PRECEDENCE
        if not keep.all():
            self._trim(train, ~keep, rules)
        if marks.any():
            self.marked += int(np.count_nonzero(marks))
            train.marked = marks if train.marked is None else train.marked | marks
        return train.only(keep) if keep.any() else None

    def _occupied(self, train: Train, queue: _Queue) -> list[float]:
        """Bytes of the queue that each datagram of a train finds, without those of this train."""
        times, now = train.arrivals(), self.calendar.now
        queue.arriving = [each for each in queue.arriving if each[1] > now]
        occupied = np.full(train.count, queue.held)
        for first, last, rest in queue.arriving:
            occupied -= np.clip((last - times) / (last - first), 0.0, 1.0) * rest
        if self._waiting == len(queue.waiting):  # none in other queues
            occupied += (self.free_at - times) * self.wire.rate_bps / 8  # on the wire; then drained
        result: list[float] = np.maximum(occupied, 0.0).tolist()
        return result

    def _trim(self, train: Train, these: Mask, rules: SwitchRules) -> None:
        """Send the headers of datagrams that found no room, if the rules say so."""
        if not rules.trim or train.control or train.trimmed:
            return
        headers = train.only(these).headers()
        self.trimmed += headers.count
        self.accept(headers)

    # --- the wire ---------------------------------------------------------------------

    def _serve(self, _: object = None) -> None:
        """Send the next train, and come again when it has left, if others wait."""
        self._due = False
        if not self._waiting:
            return
        queue = self._next()
        train = queue.waiting.popleft()
        self._waiting -= 1
        queue.held -= train.bytes
        if self.shared is not None:
            self.shared.used -= train.bytes
        self.sent += train.count
        self.sent_bytes += train.bytes
        each = train.size * 8 / self.wire.rate_bps
        start = max(self.calendar.now, self.free_at)
        self.free_at = start + train.count * each
        if self._waiting:
            self._due = True
            self.calendar.add(self.free_at, self._serve)
        train.first = start + each + self.wire.delay
        train.last = self.free_at + self.wire.delay
        kept = self.losses.keep(train.count, start, each)
        if kept is not None:
            if not kept.any():
                return
            train = train.only(kept)
        self._onwards(train)

    def _next(self) -> _Queue:
        """The queue to serve: that of the most urgent class in which a train waits."""
        if len(self._queues) == 1:
            return next(iter(self._queues.values()))
        return self._queues[min(n for n, queue in self._queues.items() if queue.waiting)]

    def _onwards(self, train: Train) -> None:
        """A faster wire takes a train when it has arrived so far that no gap remains in it."""
        train.at += 1
        if train.at == len(train.hops):
            self.calendar.add(train.last, self.deliver, train)
            return
        port: Egress = train.hops[train.at]
        needed = (train.count - 1) * train.size * 8 / port.wire.rate_bps
        self.calendar.add(max(train.first, train.last - needed), port.accept, train)
