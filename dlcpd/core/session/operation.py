"""The interface of an operation to its session. The executor of programs implements it."""

from typing import TYPE_CHECKING, Protocol

from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Key

if TYPE_CHECKING:
    from dlcpd.core.session.session import Session


class Operation(Protocol):
    """An operation in flight, as the session sees it."""

    id: OperationId  # set by the session when it begins
    begun: float  # when it began
    ready_ranks: set[int]  # peers whose READY is in
    done: bool  # it has its result, though peers may still fetch parts of it
    # transfers that miss segments here under a permit, by their sender, which has not booked them
    unbooked: set[tuple[int, Key]]
    released: bool  # peers need no parts any more: its memory is free

    @property
    def ticket(self) -> int: ...  # the client's number for it
    @property
    def label(self) -> str: ...  # in words, for errors
    @property
    def peers(self) -> frozenset[int]: ...  # ranks that it meets before data flows
    @property
    def deadline(self) -> float: ...  # absolute

    def ready_for(self, rank: int) -> Ready: ...
    def meet(self, rank: int) -> None: ...  # rank whose message a receiver has got
    def start(self, session: "Session", now: float) -> None: ...
    def on_peer_ready(self, rank: int, ready: Ready, now: float, *, late: bool) -> None: ...
    def on_known(self, rank: int) -> None: ...
    def on_carried(self, rank: int, data: bytes, now: float) -> None: ...  # READY's data
    def send_apart(self, rank: int) -> None: ...  # READY carries its data no more
    def settle_implied(self, rank: int, key: Key, now: float) -> None: ...
    def on_left(self, rank: int, now: float) -> None: ...  # that rank takes nothing more
    def open_incoming(self, rank: int, key: Key) -> Incoming | str: ...
    def on_received(self, incoming: Incoming, now: float) -> None: ...
    def on_acknowledged(self, rank: int, sender: TransferSender, now: float) -> None: ...
    def on_waived(
        self, rank: int, sender: TransferSender, missing: Segments, *, told: bool
    ) -> Segments: ...
    # the client has computed a step, or failed with an error; whether that was due
    def on_computed(self, position: int, now: float, error: str = "") -> bool: ...
    def closed(self) -> None: ...  # the session has forgotten it, done or not
    # whether it cannot end without more of a rank, which has `submitted` it
    def needs(self, rank: int, *, submitted: bool) -> bool: ...
    def awaited(self) -> tuple[frozenset[int], str]: ...  # ranks that it waits for; what, in words
