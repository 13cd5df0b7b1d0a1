"""When a silent peer is pinged, when it is suspected, and when it is lost (P6).

Silence alone is no proof: a host may be paused. A silent peer is suspected after `suspect_after`
and lost after `peer_timeout`. With a sign that its process has ended (its port is closed, or its
daemon's is), it is lost as soon as it leaves PROOF_PINGS pings unanswered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcpd.contract.errors import Peer, PeerLost
from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.session.flow import Flow

PINGS_BEFORE_LOST: Final = 8  # silence may be this process's own sleep, and pings are lost like
# data: at 20 % each way three in a row go unanswered once in twenty times, eight once in thousands
PINGS_BEFORE_SUSPECTED: Final = 3  # a false suspicion costs a line of the log
MAX_AWAITED: Final = 3  # operations named in one error
ALIKE_PINGS: Final = 3  # before they come twice, three times ... as often: some 100 until the
# suspicion, since only many pings outlast loss that counts packets and not time
CHECKS: Final = 4  # of a suspected peer, in each `suspect_after`
PROOF: Final = 0.4  # seconds in which a peer with a sign of its end may answer, and a round trip
PROOF_PINGS: Final = 5  # unanswered in this time


@dataclass(frozen=True, slots=True)
class Liveness:
    """Rules for the peers of one session. `peer_timeout`: seconds of silence after which a peer is
    lost; `suspect_after`: seconds of silence that are reported."""

    peer_timeout: float
    suspect_after: float = 1.0

    @property
    def soon(self) -> float:
        """Seconds of silence after which suspicion or loss is reported."""
        return min(self.suspect_after, self.peer_timeout)

    @property
    def interval(self) -> float:
        """Seconds between two checks of a peer that owes nothing."""
        return self.soon / CHECKS

    def is_suspect(self, flow: Flow, now: float) -> bool:
        """Whether the silence of the peer is to be reported."""
        silent = now - flow.heard_at
        return silent >= self.suspect_after and flow.unanswered >= PINGS_BEFORE_SUSPECTED

    def is_lost(self, flow: Flow, now: float) -> bool:
        """Whether the peer has been silent for too long, although it was pinged often enough."""
        if flow.sign and self._is_proved(flow, now):
            return True
        silent = now - flow.heard_at
        return silent >= self.peer_timeout and flow.unanswered >= PINGS_BEFORE_LOST

    def _is_proved(self, flow: Flow, now: float) -> bool:
        waited = now - max(flow.sign_at, flow.heard_at)
        enough = waited >= PROOF + flow.paths.timeout(CONTROL)
        return enough and flow.unanswered - flow.unanswered_at_sign >= PROOF_PINGS

    def loss(self, flow: Flow, awaited: Sequence[str], now: float) -> PeerLost:
        """The error about a lost peer; `awaited`: what waits for it, in words."""
        whence = f" from UDP {flow.address}" if flow.address else ""
        awaiting = "; ".join(awaited[:MAX_AWAITED])
        sign = f", and {flow.sign}" if flow.sign else ""
        return PeerLost(
            f"rank {flow.rank} on {flow.host} has not answered for {now - flow.heard_at:.1f} s "
            f"({flow.unanswered} pings on {len(flow.paths)} paths){whence}{sign}; "
            f"waiting for {awaiting}",
            Peer(flow.rank, flow.host, flow.address, awaiting),
        )

    def check(self, flow: Flow, now: float) -> float:
        """Ping the peer and its paths where needed; returns when to check again, absolute."""
        interval = self.interval
        owing = len(flow.paths) > 1 and flow.check_paths(now)
        if flow.paths.in_flight() or owing:
            interval = min(flow.paths.timeout(CONTROL, flow.unanswered) * 2, interval)
        if flow.sign or now - flow.heard_at >= 0.9 * interval:
            flow.ping(now)
        if flow.sign:
            return now + PROOF / (PROOF_PINGS + 1)
        if self.suspect_after <= now - flow.heard_at and flow.unanswered >= PINGS_BEFORE_LOST:
            return now + self.interval  # pinged often enough: now only time counts
        if flow.unanswered:  # so that there are enough pings before a report
            often = 1 + flow.unanswered // ALIKE_PINGS
            interval = min(interval, self.soon / (2 * PINGS_BEFORE_LOST * often))
        return now + interval
