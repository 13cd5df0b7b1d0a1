"""One rank of one job: its flows, its operations, and the submissions of its peers.

The parts of a session; a part knows only parts above it:

    SessionState      flows, open operations, streams
    Failures          operations that end without a result; the end of the session
    ReplicaCheck      digests of results, compared with the peers'
    Departures        peers that leave, and the operations that still need them
    FailureDetector   silent peers
    Rendezvous        the beginning of operations, and the READYs of the peers
    FlowCallbacks     events of transfers, passed to their operations
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dlcpd.contract.errors import DlcpError, Peer
from dlcpd.core.session.departures import Departures
from dlcpd.core.session.digests import Digest, Digester
from dlcpd.core.session.events import Stats
from dlcpd.core.session.failure_detector import FailureDetector
from dlcpd.core.session.failures import Failures
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.flow_callbacks import FlowCallbacks
from dlcpd.core.session.liveness import Liveness
from dlcpd.core.session.mailbox import Mailbox
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.outcomes import Outcomes
from dlcpd.core.session.rendezvous import Rendezvous
from dlcpd.core.session.replica_check import ReplicaCheck
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream import Streams
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.trace import Trace
from dlcpd.core.wire.control import most_carried


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """Ties the parts, and is their interface to client, daemon and operations. Time comes in with
    every call. A method without a docstring has the contract of the part that it calls."""

    number: int
    rank: int
    world_size: int
    timers: TimerTable
    counters: Counter[str]
    peer_timeout: float = 30.0  # seconds of silence after which a peer is lost
    suspect_after: float = 1.0  # seconds of silence that are reported
    host: str = ""  # name of this host; that of a flow is its peer's
    digester: Digester = field(default_factory=Digester)  # of results, to compare replicas
    trace: Trace = field(default_factory=Trace)  # of the engine
    outcomes: Outcomes = field(init=False)
    flows: dict[int, Flow] = field(init=False)  # by rank of the peer
    operations: dict[OperationId, Operation] = field(init=False)  # those that are open
    streams: Streams = field(init=False)
    mailbox: Mailbox[Operation] = field(init=False)
    rendezvous: Rendezvous = field(init=False)
    replicas: ReplicaCheck = field(init=False)
    departures: Departures = field(init=False)
    detector: FailureDetector = field(init=False)
    callbacks: FlowCallbacks = field(init=False)
    _state: SessionState = field(init=False)
    _failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = Outcomes(self.number)
        self._state = state = SessionState(
            self, self.number, self.rank, self.timers, self.trace, self.outcomes
        )
        self.flows, self.operations = state.flows, state.operations
        self.streams, self.mailbox = state.streams, state.mailbox
        self._failures = failures = Failures(state)
        self.replicas = ReplicaCheck(state, failures)
        self.departures = departures = Departures(state, failures)
        rules = Liveness(self.peer_timeout, self.suspect_after)
        self.detector = FailureDetector(state, rules, failures, departures)
        self.rendezvous = Rendezvous(state, failures, departures, self.detector, self.replicas)
        self.callbacks = FlowCallbacks(state, self.counters)

    @property
    def broken(self) -> tuple[str, str] | None:
        """Code and text of what ended the session; None while operations can be submitted."""
        return self.outcomes.broken

    @property
    def begun(self) -> int:
        """Operations that began here, of all groups."""
        return sum(stream.begun for stream in self.streams.values())

    def peer(self, rank: int) -> Peer:
        return self._state.peer(rank)

    # --- from the client: see Rendezvous, Failures, ReplicaCheck ------------------------------

    def submit(self, operation: Operation, group: int, now: float) -> None:
        self.rendezvous.submit(operation, group, now)

    def submit_send(self, operation: Operation, group: int, rank: int, now: float) -> None:
        self.rendezvous.submit_send(operation, group, rank, now)

    def submit_receive(
        self, operation: Operation, group: int, rank: int, tag: int, now: float
    ) -> None:
        self.rendezvous.submit_receive(operation, group, rank, tag, now)

    def refuse(self, ticket: int, group: int, members: Iterable[int], error: DlcpError) -> None:
        self.rendezvous.refuse(ticket, group, members, error)

    def fail_group(self, group: int, error: DlcpError) -> None:
        self._failures.fail_group(group, error)

    def conclude(self, now: float, until: float) -> None:
        self.replicas.conclude(now, until)

    def leave(self, error: DlcpError) -> None:
        """The client has gone. Operations without a result fail; peers can fetch their parts of the
        others as long as the session stays open."""
        self.outcomes.breaks(error)
        self._failures.fail_open(error)

    def end(self, error: DlcpError) -> None:
        self._failures.end(error)

    # --- from the daemon: see Rendezvous, Departures, Failures --------------------------------

    def abort(self, rank: int, wire: int, number: int, error: DlcpError, now: float) -> None:
        self.rendezvous.abort(rank, wire, number, error, now)

    def peer_left(
        self,
        rank: int,
        begun: Iterable[tuple[int, int]],
        error: DlcpError,
        now: float,
        *,
        last: bool = True,
    ) -> None:
        self.departures.peer_left(rank, begun, error, now, last=last)

    def peer_gone(self, rank: int, error: DlcpError, now: float) -> None:
        self.departures.peer_gone(rank, error, now)

    def fail_all(self, rank: int, error: DlcpError) -> None:
        self._failures.fail_all(rank, error)

    # --- from operations ---------------------------------------------------------------------

    def may_carry(self, rank: int, terms: str, size: int) -> bool:
        """Whether the READY of an operation of such `terms` may carry `size` bytes to `rank`: it
        fits a datagram, and few others that carry data are on their way."""
        flow = self.flows[rank]
        fits = size <= most_carried(terms, flow.segment_size)
        return fits and flow.twin is None and self._state.repeater.has_room(rank, size)

    def done(
        self,
        operation: Operation,
        now: float,
        *,
        stats: Stats,
        digest: Digest | None,
        source: int = -1,
    ) -> None:
        """The result of an operation is in place."""
        self.outcomes.done(operation, stats, source, now)
        if digest is not None:
            self.replicas.add(operation, digest)

    def released(self, operation: Operation) -> None:
        """No peer needs the memory of a done operation."""
        self.outcomes.released(operation)

    def finished(self, operation: Operation) -> None:
        """No peer needs anything of a done operation any more."""
        self._state.close(operation)
        self._state.tell_departure()

    def fail(self, operation: Operation, error: DlcpError) -> None:
        self._failures.fail(operation, error)

    def count(self, reason: str, times: int = 1) -> None:
        """Something that is worth a counter happened in an operation."""
        self.counters[reason] += times

    # --- time ----------------------------------------------------------------------------------

    def handle_timer(self, timer: Timer, subject: Any, now: float) -> None:
        """A timer of this session expired."""
        match timer:
            case Timer.DEADLINE:
                self._failures.on_deadline(subject)
            case Timer.READY:
                for id_ in self._state.repeater.repeat(self.flows[subject], now):
                    if (operation := self.operations.get(id_)) is not None:
                        operation.send_apart(subject)
            case Timer.ALIVE:
                self.detector.check(self.flows[subject], now)
            case Timer.DIGESTS:
                self.replicas.ask(now)
