"""Trains without content, for tests of ports."""

import numpy as np

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.fabric import LeafSpine, SimFabric
from dlcp_lab.simulation.train import FRAMING, Train
from dlcpd.core.wire.header import HEADER_SIZE

SIZE = 1000  # bytes of a datagram on the wire


def train(source: int, target: int, count: int, *, tag: int = 0, path: int = 0) -> Train:
    length = SIZE - FRAMING
    tags = np.full(count, tag, np.uint8)
    rows = np.zeros((count, length), np.uint8)
    assert length > HEADER_SIZE
    return Train(
        source, target, path, count, float(SIZE), tags, rows, np.full(count, length, np.intp)
    )


class Ports:
    """A fabric whose hosts keep the trains that arrive, and when."""

    def __init__(self, plan: LeafSpine) -> None:
        self.calendar = Calendar(0.0)
        self.arrived: list[tuple[float, Train]] = []
        self.fabric = SimFabric(plan, self.calendar, self._keep)

    def _keep(self, train: Train) -> None:
        self.arrived.append((self.calendar.now, train))

    def send(self, train: Train, at: float = 0.0) -> None:
        self.calendar.add(at, self.fabric.send, train)

    def run(self) -> None:
        for _ in range(1_000_000):
            if self.calendar.next_at == float("inf"):
                return
            self.calendar.step()
        raise AssertionError("too many events")

    @property
    def datagrams(self) -> int:
        return sum(train.count for _, train in self.arrived)
