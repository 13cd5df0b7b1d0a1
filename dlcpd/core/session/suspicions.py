"""Peers whose silence is long enough to report to the operator."""

from dataclasses import dataclass, field

from dlcpd.core.session.events import PeerNews, PeerState
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.liveness import Liveness


@dataclass(slots=True)
class Suspicions:
    """News when the silence of a peer becomes suspicious, and when the peer is heard again."""

    session: int
    _since: dict[int, float] = field(default_factory=dict)  # rank -> when it was last heard

    def check(self, flow: Flow, rules: Liveness, now: float) -> PeerNews | None:
        """Check the peer of a flow that operations wait for; returns the news, if any."""
        if flow.rank not in self._since:
            if not rules.is_suspect(flow, now):
                return None
            flow.suspected = True
            self._since[flow.rank] = flow.heard_at
            return PeerNews(self.session, flow.rank, PeerState.SUSPECTED, now - flow.heard_at)
        return None if flow.suspected else self.end(flow, now)

    def end(self, flow: Flow, now: float) -> PeerNews | None:
        """The peer is heard, or no operation waits for it any more."""
        since = self._since.pop(flow.rank, None)
        if since is None:
            return None
        state = PeerState.AWAITED_NO_MORE if flow.suspected else PeerState.HEARD
        flow.suspected = False
        return PeerNews(self.session, flow.rank, state, max(now - since, 0.0))
