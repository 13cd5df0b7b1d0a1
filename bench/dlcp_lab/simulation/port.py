"""One switch port of the simulated network: strict priority, drop precedences, CE marks."""

from collections import deque
from dataclasses import dataclass, field

from dlcpd.contract.traffic import DROP_PRECEDENCES

TAG = 23  # offset of the tag in a datagram
LAST_RANK = 2  # what a full queue drops first; not ECN-capable


@dataclass
class SimPort:
    """Queues of up to `queue` datagrams, one per class; served one datagram at a time.

    With `ranks`, drop precedence r is refused beyond (1, 3/4, 1/2)[r] of the queue; from `mark`
    datagrams on, those of the lower ranks are marked CE.
    """

    queue: int
    ranks: bool = False
    mark: int = 1 << 30
    busy: bool = False
    dropped: dict[int, int] = field(default_factory=dict)  # by tag
    _queues: dict[int, deque[tuple[bytes, bool]]] = field(default_factory=dict)

    def offer(self, data: bytes) -> bool:
        """Take a datagram in; False when its queue is too full."""
        tag = data[TAG]
        waiting = self._queues.setdefault(tag // DROP_PRECEDENCES, deque())
        rank = tag % DROP_PRECEDENCES
        share = (4 - rank) / 4 if self.ranks else 1.0
        if len(waiting) >= self.queue * share:
            self.dropped[tag] = self.dropped.get(tag, 0) + 1
            return False
        waiting.append((data, len(waiting) >= self.mark and rank != LAST_RANK))
        return True

    def serve(self) -> tuple[bytes, bool] | None:
        """The next datagram, and whether it is marked CE; None: nothing waits."""
        for traffic_class in sorted(self._queues):
            if self._queues[traffic_class]:
                return self._queues[traffic_class].popleft()
        return None
