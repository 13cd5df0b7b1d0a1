"""The rules of a simulated switch for datagrams that find little room."""

import math
from dataclasses import dataclass

from dlcp_lab.simulation.train import Train
from dlcpd.contract.traffic import DROP_PRECEDENCES

HEADERS = -1  # queue of trimmed datagrams
SHARES = (1.0, 0.75, 0.5, 0.5)  # of a queue that each drop precedence may fill


@dataclass(frozen=True)
class SwitchRules:
    """The settings of all ports of the switches."""

    port_buffer: float = 256 << 10  # bytes that may wait in one queue of a port
    shared_buffer: float = math.inf  # bytes of a switch, of all of its ports
    alpha: float = 1.0  # a queue may hold this times the part of the shared buffer that is free
    classes: bool = False  # a queue per traffic class, the most urgent first; False: one queue
    precedences: bool = False  # drop precedence r fills only a part of a queue, see SHARES
    mark: float = math.inf  # bytes in a queue from which on it marks Congestion Experienced
    trim: bool = False  # a datagram without room is cut to its header, which goes ahead of data

    def queue(self, train: Train) -> int:
        """The queue of a train: that with the lowest number is served first."""
        if train.trimmed:
            return HEADERS
        return train.traffic_class if self.classes else 0

    def share(self, tag: int) -> float:
        """The part of a queue that a tag may fill."""
        return SHARES[tag % DROP_PRECEDENCES] if self.precedences else 1.0


@dataclass
class SharedBuffer:
    """The memory of one switch."""

    size: float  # bytes
    used: float = 0.0

    @property
    def free(self) -> float:
        return max(self.size - self.used, 0.0)
