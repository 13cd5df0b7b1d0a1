"""The receiving end of a simulated TCP connection."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcp_lab.simulation.fabric import SimFabric
from dlcp_lab.simulation.train import FRAMING, NO_LENGTHS, NO_ROWS, TAGS, Train

ACK_SIZE: Final = FRAMING + 24  # bytes on the wire: 12 more than with UDP, and 12 of time stamps


@dataclass(slots=True, eq=False, repr=False)
class Receiver:
    """`log`: the segments in the order of arrival, repeated ones included. An acknowledgement says
    how much of it there is: as if selective acknowledgements had room for all.

    `arrived(count)`: the first `count` segments are here.
    """

    fabric: SimFabric
    arrived: Callable[[int], None]
    log: list[int] = field(default_factory=list)
    in_order: int = 0
    _out_of_order: set[int] = field(default_factory=set)

    def on_data(self, train: Train) -> None:
        """Acknowledge the segments of a train together, as behind receive offload."""
        for number in np.ascontiguousarray(train.rows).view(np.int64).ravel().tolist():
            self.log.append(number)
            if number >= self.in_order:
                self._out_of_order.add(number)
        before = self.in_order
        while self.in_order in self._out_of_order:
            self._out_of_order.remove(self.in_order)
            self.in_order += 1
        self._acknowledge(train)
        if self.in_order > before:
            self.arrived(self.in_order)

    def _acknowledge(self, train: Train) -> None:
        count = len(self.log).to_bytes(8, "little")
        self.fabric.send(
            Train(
                train.target,
                train.source,
                train.path,
                1,
                ACK_SIZE,
                TAGS[:1],
                NO_ROWS,
                NO_LENGTHS,
                count,
            )
        )
