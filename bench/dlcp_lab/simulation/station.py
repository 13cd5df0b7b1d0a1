"""A simulated host: its endpoint, the datagrams that wait for it, and the time of its CPU."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

import numpy as np

from dlcp_lab.simulation.train import Train
from dlcpd.collectives.execution import Execution
from dlcpd.contract.traffic import Ecn
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.core.wire.rows import Received


@dataclass(frozen=True)
class HostCost:
    """CPU time of an engine, seconds; `dlcpctl bench engine --account` measures it."""

    wake_up: float = 0.0
    datagram: float = 0.0  # received or sent
    transfer: float = 0.0  # or another step of a program that has ended
    gather: float = 50e-6  # from the first arrival to the wake-up that takes in all arrivals since
    receive_buffer: float = 1 << 26  # bytes that may wait for a wake-up; more are lost


FREE = HostCost()


@dataclass(slots=True, eq=False, repr=False)
class Station:
    """One host of the fabric."""

    number: int
    endpoint: Endpoint
    cost: HostCost
    inbox: list[Train] = field(default_factory=list)
    held: float = 0.0  # bytes in the inbox
    busy_until: float = 0.0  # seconds
    wakes_at: float = float("inf")  # the next wake-up; earlier events of it are void
    wake_ups: int = 0
    overflowed: int = 0  # datagrams that found the receive buffer full
    trimmed: int = 0  # headers of trimmed datagrams

    @property
    def open_steps(self) -> int:
        """Steps of all its operations that are to be done."""
        sessions = self.endpoint.sessions.values()
        return sum(
            len(cast(Execution, each).progress.open)
            for session in sessions
            for each in session.operations.values()
        )

    def take(self, train: Train) -> bool:
        """Keep a train for the next wake-up; False: it is lost."""
        if train.trimmed:
            self.trimmed += train.count
            return False
        if self.held + train.bytes > self.cost.receive_buffer:
            self.overflowed += train.count
            return False
        self.held += train.bytes
        self.inbox.append(train)
        return True

    def receive(self, now: float) -> int:
        """Hand over all that waits to the endpoint; returns the number of datagrams."""
        by_path = defaultdict[int, list[Train]](list)
        for train in self.inbox:
            by_path[train.path].append(train)
        count = sum(train.count for train in self.inbox)
        self.inbox, self.held = [], 0.0
        for path, trains in by_path.items():
            self.endpoint.receive(received(path, trains, now), now)
        return count


def received(path: int, trains: Iterable[Train], now: float) -> Received:
    """Trains of one path as one receive call returns them: data as rows, control as strays."""
    data = [train for train in trains if not train.control]
    control = [train.control for train in trains if train.control]
    if not data:
        empty = np.empty((1, HEADER_SIZE), np.uint8)
        none = np.empty(0, np.intp)
        return Received(path, [now], 1, empty, none, none, control, now)
    width = max(train.rows.shape[1] for train in data)
    rows = data[0].rows if len(data) == 1 else np.concatenate([_wide(t, width) for t in data])
    lengths = np.concatenate([train.lengths for train in data])
    arrivals = list(chain.from_iterable(train.arrivals().tolist() for train in data))
    made = Received(path, arrivals, 1, rows, np.arange(len(rows)), lengths, control, now)
    if any(train.marked is not None for train in data):
        marks = [np.zeros(t.count, bool) if t.marked is None else t.marked for t in data]
        made.tos = np.where(np.concatenate(marks), int(Ecn.CE), 0).astype(np.int32)
        made.congested = True
    return made


def _wide(train: Train, width: int) -> np.ndarray:
    rows = train.rows
    missing = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing))) if missing else rows
