"""Detects silent peers, for as long as operations wait for them."""

from dataclasses import dataclass, field

from dlcpd.core.session.departures import Departures
from dlcpd.core.session.events import PeerNews
from dlcpd.core.session.failures import Failures
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.liveness import Liveness
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.suspicions import Suspicions
from dlcpd.core.timers import Timer


@dataclass(slots=True, eq=False, repr=False)
class FailureDetector:
    """Pings silent peers, reports suspected ones, and breaks the session when one is lost."""

    state: SessionState
    rules: Liveness
    failures: Failures
    departures: Departures
    _suspicions: Suspicions = field(init=False)

    def __post_init__(self) -> None:
        self._suspicions = Suspicions(self.state.number)

    def watch(self, flow: Flow, now: float) -> None:
        """An operation waits for the peer of a flow from now on."""
        key = (self.state.owner, Timer.ALIVE, flow.rank)
        if not self.state.timers.pending(key):
            flow.heard(now)
            self.state.timers.set(key, now + self.rules.interval)

    def check(self, flow: Flow, now: float) -> None:
        """Check a peer, and set the time of the next check while an operation waits for it."""
        waiting = self._waiting_for(flow)
        if not waiting:
            self._tell(self._suspicions.end(flow, now))
            return
        if self.rules.is_lost(flow, now):
            awaited = [operation.awaited()[1] for operation in waiting]
            self.failures.fail_all(flow.rank, self.rules.loss(flow, awaited, now))
            for operation in [o for o in self.state.operations.values() if flow.rank in o.peers]:
                self.departures.release(flow.rank, operation, now)
            return
        self._tell(self._suspicions.check(flow, self.rules, now))
        at = self.rules.check(flow, now)
        self.state.timers.set((self.state.owner, Timer.ALIVE, flow.rank), at)

    def _waiting_for(self, flow: Flow) -> list[Operation]:
        state = self.state
        if state.departed.is_over(flow.rank):
            return []
        waiting = [op for op in state.operations.values() if flow.rank in op.peers]
        wanted = [w.receiver for w in state.mailbox.receivers if w.rank in (ANY, flow.rank)]
        return waiting + wanted

    def _tell(self, news: PeerNews | None) -> None:
        if news is not None:
            self.state.outcomes.events.append(news)

    def doubt(self, rank: int, sign: str, now: float) -> None:
        """There is a sign that a peer's process has ended: ping it at once. `sign`: in words."""
        flow, key = self.state.flows.get(rank), (self.state.owner, Timer.ALIVE, rank)
        if flow is None or not self.state.timers.pending(key):
            return  # no operation waits for it
        if flow.doubt(sign, now):
            self.state.timers.set(key, now)

    def excuse(self, seconds: float, now: float) -> None:
        """This process could not listen for `seconds`, which do not count as silence of peers."""
        for flow in self.state.flows.values():
            flow.excuse(seconds, now)
