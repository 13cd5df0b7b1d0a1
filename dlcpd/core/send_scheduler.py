"""Chooses the flow that sends next, and how much is sent before arrivals are handled again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.session.flow import Flow
from dlcpd.core.wire.datagram import Transmit

MOST_TURN: Final = 4 << 20  # bytes sent per wake-up, before arrivals are handled again
LEAST_TURN: Final = 64 << 10  # likewise: a GSO burst
TURN_TIME: Final = 1e-3  # seconds that it may take; through a device that takes packets one by one,
# 4 MB take 35 ms, in which a peer waits for its credit and the two hosts alternate
TURN_GAIN: Final = 0.25  # weight of the last turn
PACED_BURST: Final = 22  # datagrams worth a wake-up when the pacer limits: 0.25 ms of 1 Gb/s

# flow, now, bytes: the next batch of the flow, if any
NextBatch = Callable[[Flow, float, int], Transmit | None]


@dataclass(slots=True, eq=False)
class SendScheduler:
    """Sessions get equal parts, however many flows they have and however urgent they are; within
    one, the most urgent class comes first, and its flows take turns."""

    pacer: Pacer
    size: int = MOST_TURN  # bytes of a turn at most
    more: bool = False  # the last turn ended at its size, not for lack of room or data
    paced: bool = False  # it was limited by the pacer
    _sent: dict[int, int] = field(default_factory=dict)  # by session: bytes, since those began
    _least: int = 0  # the least of `_sent`, of sessions that want to send
    turn: int = 0  # number; with it rotates the flow that comes first, see `Endpoint.open_session`

    def batches(
        self, flows: Iterable[Flow], now: float, next_batch: NextBatch
    ) -> Iterator[Transmit]:
        """A turn of `flows`, those that have data: batches to send now."""
        self.more = self.paced = False
        ready = self._ready(flows)
        if not ready:
            return
        turn = left = min(self.size, self.pacer.allowance(now))
        while ready and left > 0:
            number = min(ready, key=self._sent.__getitem__)
            self._least = self._sent[number]
            flow, batch = _next(ready[number], now, left, next_batch)
            if batch is None and not flow.outgoing.held:
                break  # the rest of the turn is less than a datagram
            if not ready[number]:
                del ready[number]
            if batch is not None:
                self._sent[number] += batch.size
                left -= batch.size
                self.pacer.spend(batch.size)
                yield batch
        self.more = bool(ready) and turn == self.size
        self.paced = turn < self.size

    def took(self, size: int, seconds: float) -> None:
        """Sending `size` bytes took `seconds`: adapt the turn to about TURN_TIME."""
        if size >= LEAST_TURN:  # else the time is that of the calls
            wanted = min(max(size * TURN_TIME / seconds, LEAST_TURN), MOST_TURN)
            self.size += int(TURN_GAIN * (wanted - self.size))

    def resumes_at(self, segment_size: int, now: float) -> float:
        """When the pacer has saved a burst; if not after `now`, the flows do not wait for the
        pacer."""
        return self.pacer.ready_at(PACED_BURST * segment_size, now)

    def forget(self, number: int) -> None:
        """A session has ended."""
        self._sent.pop(number, None)

    def _ready(self, flows: Iterable[Flow]) -> dict[int, dict[Flow, int]]:
        """By session: flows that may send, rotated by turn, and their classes."""
        self.turn += 1
        by_session: dict[int, list[tuple[Flow, int]]] = {}
        for flow in flows:
            traffic_class = flow.outgoing.next_class
            if traffic_class is not None and not flow.outgoing.held:
                by_session.setdefault(flow.session.number, []).append((flow, traffic_class))
        ready: dict[int, dict[Flow, int]] = {}
        for number, waiting in by_session.items():
            first = self.turn % len(waiting)
            ready[number] = dict(waiting[first:] + waiting[:first])
            # a session that was idle does not catch up on what others have sent meanwhile
            self._sent[number] = max(self._sent.get(number, 0), self._least)
        return ready


def _next(
    flows: dict[Flow, int], now: float, allowance: int, next_batch: NextBatch
) -> tuple[Flow, Transmit | None]:
    """A batch of one session, and its flow, which goes to the end of `flows`, or leaves."""
    urgent = min(flows.values())
    flow = next(flow for flow, traffic_class in flows.items() if traffic_class == urgent)
    del flows[flow]
    batch = next_batch(flow, now, allowance)
    following = flow.outgoing.next_class
    if batch is not None and following is not None:
        flows[flow] = following
    return flow, batch
