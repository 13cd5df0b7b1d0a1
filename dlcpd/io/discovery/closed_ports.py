"""Detects peers whose UDP port is closed, by ICMP port unreachable.

Only a message that quotes a flow's own token counts: only the two ends, and those who can read
their traffic, know the token. The message is a sign and no proof: a peer that answers is never lost
by it.
"""

from collections.abc import Mapping
from typing import Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.wire.header import Header
from dlcpd.io.discovery.icmp import IcmpNews

SIGN: Final = "its UDP port is closed: its process has ended"


class ClosedPorts:
    """Tells sessions of peers whose engine is gone."""

    def __init__(self, sessions: Mapping[int, Session]) -> None:
        """`sessions`: the open ones of this engine, by number."""
        self._sessions = sessions
        self._flows: dict[int, Flow] = {}  # by the token of datagrams to the peer
        self._towards: dict[str, dict[int, Flow]] = {}  # by the address of the peer's engine

    def add(self, flow: Flow) -> None:
        """Watch a flow, whose address is known."""
        self._flows[flow.token_out] = flow
        self._towards.setdefault(flow.address, {})[flow.index] = flow

    def forget(self, flow: Flow) -> None:
        """The flow is about to close."""
        if self._flows.get(flow.token_out) is flow:
            del self._flows[flow.token_out]
        same = self._towards.get(flow.address, {})
        same.pop(flow.index, None)
        if not same:
            self._towards.pop(flow.address, None)

    def on_refused(self, news: IcmpNews, now: float) -> bool:
        """A datagram came to a closed port. False: it was of no flow here.

        All flows to the same engine are told: a host sends few of these messages.
        """
        try:
            flow = self._flows.get(Header.unpack_untrusted(news.quoted).token)
        except MalformedDatagram:
            flow = None
        if flow is None:
            return False
        if not flow.sign:
            for same in list(self._towards[flow.address].values()):
                self._sessions[same.session.number].detector.doubt(same.rank, SIGN, now)
        return True
