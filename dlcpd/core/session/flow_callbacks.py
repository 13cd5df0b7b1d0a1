"""The callbacks of the flows of a session: events of transfers reach their operations."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlcpd.core.paths.health import PathState
from dlcpd.core.session.events import PathNews
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream_ids import operation_id, stream_id
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.header import Key


@dataclass(slots=True, eq=False, repr=False)
class FlowCallbacks:
    """Finds the operation of a transfer and passes the event on; the `FlowOwner` of a session."""

    state: SessionState
    counters: Counter[str]
    number: int = field(init=False)  # of the session

    def __post_init__(self) -> None:
        self.number = self.state.number

    def settle_implied(self, rank: int, key: Key, now: float) -> None:
        operation = self.state.operations.get(operation_id(key, rank))
        if operation is not None:
            operation.settle_implied(rank, key, now)

    def open_incoming(self, rank: int, key: Key) -> Incoming | str:
        operation = self.state.operations.get(operation_id(key, rank))
        if operation is not None:
            return operation.open_incoming(rank, key)
        stream = self.state.streams.get(stream_id(key.stream, rank))
        return "early" if stream is None else stream.refusal(key.operation)

    def on_received(self, incoming: Incoming, now: float) -> None:
        operation = self.state.operations.get(operation_id(incoming.key, incoming.rank))
        if operation is not None:
            operation.on_received(incoming, now)

    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None:
        id_ = operation_id(sender.key, rank)
        self.state.on_ready_acked(rank, id_)  # it took this rank's data: it has its READY
        operation = self.state.operations.get(id_)
        if operation is not None:
            operation.on_acknowledged(rank, sender, now)

    def on_waived(
        self, rank: int, sender: TransferSender, missing: Segments, *, told: bool
    ) -> Segments:
        operation = self.state.operations.get(operation_id(sender.key, rank))
        if operation is None:
            return np.empty(0, np.intp)
        return operation.on_waived(rank, sender, missing, told=told)

    def on_passed(self, rank: int, key: Key, now: float) -> None:
        self.state.repeater.remind(self.state.flows[rank], operation_id(key, rank), now)

    def on_booked(self, rank: int, key: Key) -> None:
        operation = self.state.operations.get(operation_id(key, rank))
        if operation is not None:
            operation.unbooked.discard((rank, key))
            operation.on_known(rank)

    def on_path(self, rank: int, path: int, state: PathState) -> None:
        self.counters[state.value] += 1
        loss = self.state.flows[rank].paths.health[path].loss
        self.state.outcomes.events.append(PathNews(self.number, rank, path, state, loss))

    def count(self, reason: str, datagrams: int = 1) -> None:
        self.counters[reason] += datagrams

    def set_timer(self, key: Any, at: float) -> None:
        self.state.timers.set(key, at)

    def cancel_timer(self, key: Any) -> None:
        self.state.timers.cancel(key)
