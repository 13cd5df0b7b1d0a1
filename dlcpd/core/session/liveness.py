"""When a silent peer is asked whether it lives, and when it is given up (P6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.contract.errors import Peer, PeerLost
from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.session.flow import Flow

PINGS_BEFORE_LOST: Final = 8  # silence alone may be our own sleep, and pings are lost like data:
# at 20 % each way three in a row go unanswered once in twenty times, eight once in thousands
MAX_AWAITED: Final = 3  # operations named in one error
ALIKE_PINGS: Final = 3  # before they come twice, three times ... as often: some 100 in all, since
# loss that goes by packets and not by time is outlasted by nothing else


@dataclass(frozen=True, slots=True)
class Liveness:
    """Rules for the peers of one session. `peer_timeout`: seconds of silence that end one."""

    peer_timeout: float

    @property
    def interval(self) -> float:
        """Seconds between two looks at a peer of which nothing is owed."""
        return self.peer_timeout / 4

    def is_lost(self, flow: Flow, now: float) -> bool:
        """Whether the peer has been silent for too long, however often it was asked."""
        silent = now - flow.heard_at
        return silent >= self.peer_timeout and flow.unanswered >= PINGS_BEFORE_LOST

    def loss(self, flow: Flow, awaited: Sequence[str], now: float) -> PeerLost:
        """The error about a lost peer; `awaited`: what waits for it, in words."""
        whence = f" from UDP {flow.address}" if flow.address else ""
        awaiting = "; ".join(awaited[:MAX_AWAITED])
        return PeerLost(
            f"rank {flow.rank} on {flow.host} has not answered for {now - flow.heard_at:.1f} s "
            f"({flow.unanswered} pings on {len(flow.paths)} paths){whence}; waiting for {awaiting}",
            Peer(flow.rank, flow.host, flow.address, awaiting),
        )

    def look(self, flow: Flow, now: float) -> float:
        """Ask what there is to ask; returns when to look again, absolute."""
        interval = self.interval
        owing = len(flow.paths) > 1 and flow.check_paths(now)
        if flow.paths.in_flight() or owing:
            interval = min(flow.paths.timeout(CONTROL, flow.unanswered) * 2, interval)
        if now - flow.heard_at >= 0.9 * interval:
            flow.ping(now)
        if flow.unanswered:  # so that there are enough of them within the peer timeout
            often = 1 + flow.unanswered // ALIKE_PINGS
            interval = min(interval, self.peer_timeout / (2 * PINGS_BEFORE_LOST * often))
        return now + interval
