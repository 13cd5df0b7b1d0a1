"""Rounds of a probe in an engine: messages to one peer and from another, timed as they arrive.

They take the flows, paths and congestion control of the session, as its operations do; the memory
is the engine's own. Control chooses pairs and sizes (`dlcpd.daemon.sessions.prober`).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcpd.collectives.order import Group
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.messages import PROBES, Submit
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.session.events import Event, OperationDone, OperationFailed
from dlcpd.core.session.session import Session
from dlcpd.core.session.stream_ids import MESSAGES
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.io.clients.client import Client
from dlcpd.io.commands import NO_PEER, PROBE_MESSAGES, ProbeFlows
from dlcpd.io.control_events import FlowsProbed
from dlcpd.io.control_link import ControlLink
from dlcpd.requests.group import GroupRequests

BITS: Final = 8
SKIPPED: Final = PROBE_MESSAGES // 4  # messages until the sender has found the rate
AROUND: Final = HEADER_SIZE + 42  # bytes of a datagram around its segment: UDP, IPv4, Ethernet


@dataclass(slots=True)
class FlowRound:
    """The round of one session."""

    command: ProbeFlows
    began: float
    of_job: int  # operations of the job that had begun
    share: float  # bytes on the wire for each byte that arrives
    open: dict[int, bool] = field(default_factory=dict)  # by ticket: whether it receives
    arrived: list[float] = field(default_factory=list)  # times at which messages were complete

    @property
    def rate(self) -> int:
        """Bit/s of the messages after SKIPPED; 0: nothing was to arrive. Messages that one wake-up
        reports at once say no more than the whole round."""
        if len(self.arrived) < PROBE_MESSAGES:
            return 0
        last, whole = self.arrived[-1], self.arrived[-1] - self.began
        seconds = max(last - self.arrived[SKIPPED - 1], whole / PROBE_MESSAGES, 1e-6)
        size = self.command.in_bytes // PROBE_MESSAGES * self.share
        return round((PROBE_MESSAGES - SKIPPED) * size * BITS / seconds)


class ProbeRounds:
    """The rounds of all sessions; `clients` are those of the engine, by session. Operations of a
    probe have tickets below 0: no client knows them."""

    def __init__(self, control: ControlLink, clients: Mapping[int, Client]) -> None:
        self._control, self._clients = control, clients
        self._rounds: dict[int, FlowRound] = {}  # by session
        self._groups: dict[int, GroupRequests] = {}  # likewise
        self._ticket = 0

    def obey(self, command: ProbeFlows, now: float) -> None:
        """Begin a round; FlowsProbed follows. It replaces an earlier one of the session, whose
        operations end by their deadline. A session that is over is no error."""
        client = self._clients.get(command.session)
        if client is None:
            return
        one = self._rounds[command.session] = FlowRound(
            command, now, _of_job(client.session), _share(client.session, command.source)
        )
        why = ""
        if command.idle and (busy := _open(client)):
            why = f"{busy} operations of the job are open"
        else:
            try:
                self._begin(client, one, now)
            except DlcpError as exc:
                why = str(exc)
        if why or not one.open:
            self._end(one, why)

    def on_event(self, event: Event) -> None:
        """The outcome of an operation of a probe; one of an earlier round is no error."""
        one = self._rounds.get(event.session)
        if isinstance(event, OperationFailed) and one and event.ticket in one.open:
            self._end(one, event.text)
        elif isinstance(event, OperationDone) and one and event.ticket in one.open:
            if one.open.pop(event.ticket):
                one.arrived.append(time.monotonic())
            if not one.open:
                session = self._clients[event.session].session
                disturbed = one.command.idle and _of_job(session) != one.of_job
                self._end(one, "the job began operations meanwhile" if disturbed else "")

    def forget(self, session: int) -> None:
        """A session has closed."""
        self._rounds.pop(session, None)
        self._groups.pop(session, None)

    def _begin(self, client: Client, one: FlowRound, now: float) -> None:
        """Raises: DlcpError; operations that have begun end by themselves."""
        command = one.command
        out, into = command.out_bytes // PROBE_MESSAGES, command.in_bytes // PROBE_MESSAGES
        memory = np.zeros(max(out, into), np.uint8)  # of all messages: the bytes have no meaning
        asks = [_ask("receive", command.source, 0, into), _ask("send", command.target, out, 0)]
        for ask in asks:
            ask.tag, ask.deadline = command.serial, command.deadline  # no message of another round
            for _ in range(PROBE_MESSAGES if ask.peer != NO_PEER else 0):
                self._submit(client, one, ask, memory, now)

    def _submit(
        self, client: Client, one: FlowRound, ask: Submit, memory: Bytes, now: float
    ) -> None:
        session, receives = client.session, ask.collective == "receive"
        group = self._groups.get(session.number)
        if group is None:
            group = self._groups[session.number] = _group(client)
        self._ticket -= 1
        ask.operation = self._ticket
        operation = group.make(ask, memory, client.lane.accounts, now)
        operation.buffers.hold(operation.charge)
        try:
            if receives:
                session.submit_receive(operation, PROBES, ask.peer, ask.tag, now)
            else:
                session.submit_send(operation, PROBES, ask.peer, now)
        except DlcpError:
            operation.closed()
            raise
        one.open[ask.operation] = receives

    def _end(self, one: FlowRound, why: str) -> None:
        command = one.command
        del self._rounds[command.session]
        rate = 0 if why else one.rate
        self._control.emit(FlowsProbed(command.session, command.serial, rate, why))


def _open(client: Client) -> int:
    """Operations of the job without a result, those included that have not begun."""
    known = client.session.operations.items()
    open_ = sum(not one.done and id_[0] & ~MESSAGES != PROBES for id_, one in known)
    return open_ + (client.held is not None) + (client.pending is not None)


def _of_job(session: Session) -> int:
    """Operations of the job that have begun."""
    return sum(stream.begun for stream in session.streams.values() if stream.group != PROBES)


def _share(session: Session, source: int) -> float:
    """Bytes on the wire for each byte from a peer; its datagrams are as long as those to it."""
    flow = session.flows.get(source)
    return 1.0 if flow is None else (flow.segment_size + AROUND) / flow.segment_size


def _group(client: Client) -> GroupRequests:
    session = client.session
    members = tuple(range(session.world_size))
    group = Group(PROBES, members, session.rank, "probe")
    return GroupRequests(client.config.rules, client.scratch, session, group)


def _ask(collective: str, peer: int, given: int, wanted: int) -> Submit:
    """A message of `given` bytes, or one of `wanted`, to or from `peer`."""
    return Submit(
        operation=0,  # see `_submit`
        group=PROBES,
        collective=collective,
        schedule="",
        peer=peer,
        tag=0,
        input=0,
        input_count=given,
        output=0,
        output_count=wanted,
        sizes=[],
        dtype="uint8",
        reduce="sum",
        max_loss=0.0,
        fill="zero",
        traffic_class=len(traffic_classes()) - 1,  # that of gradients without layers
        deadline=0.0,
        in_place=True,  # a send ends when the peer has it
        name="",
        exempt=[],
        layers=[],
    )
