"""Passes data and control between ranks of this process: one copy, no datagram on a network."""

from dataclasses import dataclass
from typing import Final

from dlcpd.core.demultiplexer import Demultiplexer, Fault
from dlcpd.core.session.flow import Flow
from dlcpd.core.touched_flows import TouchedFlows

HERE_TURN: Final = 8 << 20  # bytes copied within this process per turn, before other work: some
# milliseconds, with the reductions that follow


@dataclass(slots=True, eq=False, repr=False)
class LocalExchange:
    """Runs in turns of HERE_TURN bytes, so that the process also serves its other sources."""

    touched: TouchedFlows
    demultiplexer: Demultiplexer
    faults: list[Fault]
    more: bool = False  # the last turn stopped after HERE_TURN bytes
    _turns: int = 0

    def run(self, now: float) -> None:
        """Pass data and control on until nothing moves any more, or HERE_TURN bytes have moved:
        then there is `more`."""
        left, moved = HERE_TURN, True
        self._turns += 1
        while moved and left > 0:
            moved = False
            for flow in self.touched.take_here(self._turns):
                try:
                    size = self._exchange(flow, now, left)
                    moved, left = moved or size > 0, left - size
                except Exception as exc:  # a bug, of either side
                    self.faults.append((flow.session.number, exc))
                    if flow.twin is not None:
                        self.faults.append((flow.twin.session.number, exc))
        self.more = left <= 0

    def _exchange(self, flow: Flow, now: float, most: int) -> int:
        """Returns the bytes that have moved, plus the number of control datagrams."""
        moved = flow.deliver(now, most)
        for datagram in flow.flush(now):
            moved += 1
            self.demultiplexer.pass_on(datagram.data, now)
        return moved
