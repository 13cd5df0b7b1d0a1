"""Shares the receive buffers of an engine among the peers that send to it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from dlcpd.core.paths.incast import ArrivalRate, beyond
from dlcpd.core.session.flow import Flow


@dataclass(frozen=True, slots=True)
class Grants:
    """Sets `grant` and `opening` of flows: bytes that their peers may have in flight."""

    total: int  # bytes that all peers together may have in flight towards this engine
    max_window: int  # bytes that one peer may
    congestion_control: bool  # False: the buffers alone are the limit
    arriving: ArrivalRate

    def share(self, flows: Collection[Flow]) -> None:
        """Set the initial grant of each sender, as if all of them began at once."""
        for flow in flows:
            self._update(flow, len(flows), len(flows), 0.0)

    def renew(self, answered: Iterable[Flow], flows: Collection[Flow], senders: int) -> None:
        """Set the grants of those of `flows` that are `answered` now. `senders` flows have data in
        open operations.

        Data and answers of this host leave by one queue: the least wait on the way to any peer is
        taken for that queue, in which all answers wait.
        """
        queue = min([flow.paths.queue for flow in flows])
        wait = beyond(queue) if queue < inf else 0.0
        for flow in answered:
            self._update(flow, len(flows), senders, wait)

    def _update(self, flow: Flow, count: int, senders: int, wait: float) -> None:
        """Set the grant of one of `count` flows: an equal share of the receive buffers, at most
        `max_window`, and at most its part, among `senders`, of what arrives per round trip and in
        `wait` seconds."""
        flow.grant = flow.opening = min(self.total // count, self.max_window)
        if self.congestion_control:
            seconds, quickest = flow.paths.cover + wait, flow.paths.quickest
            flow.grant = min(self.arriving.share(seconds, quickest, senders), flow.grant)
            flow.opening = min(self.arriving.share(seconds, quickest, count), flow.opening)
