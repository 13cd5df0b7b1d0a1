"""One client on the session socket: its state, the messages legal in it, and the answers."""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace

from dlcpd.contract.errors import BadMessage, DlcpError, NotPermitted, SessionClosed, TooMany
from dlcpd.contract.frames import decode_untrusted, encode_for
from dlcpd.contract.inquiries import (
    CordonRequest,
    HealthRequest,
    Probed,
    ProbeRequest,
    Status,
    StatusRequest,
    Traced,
    TraceRequest,
)
from dlcpd.contract.messages import (
    MAX_TEXT,
    SERVED,
    VERSION,
    Hello,
    Join,
    Joined,
    Message,
    Refused,
    Welcome,
)
from dlcpd.daemon import log
from dlcpd.daemon.clients.channel import PacketChannel
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.cordon import Cordon
from dlcpd.daemon.fair_table import FairTable
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.daemon.sessions.sessions import Sessions
from dlcpd.daemon.tracing import Tracing
from dlcpd.daemon.versions import named

LONG_SINCE: Final = 11  # the version of messages since which a status may come in several
MAX_LONG: Final = 4  # reports in several messages that are being read
MAX_REFUSAL: Final = 16 * MAX_TEXT  # characters, the limit of Refused.text
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


class ConnectionState(Enum):
    """State of a client's connection."""

    NEW = auto()
    GREETED = auto()
    JOINING = auto()
    JOINED = auto()
    CLOSED = auto()


class ConnectionInput(Enum):
    """Events that change the state."""

    HELLO = auto()  # from the client
    JOIN = auto()  # from the client
    OPENED = auto()  # all peers are up
    FAILED = auto()  # the join failed; the client may try again
    CLOSE = auto()


TRANSITIONS: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (ConnectionState.NEW, ConnectionInput.HELLO): ConnectionState.GREETED,
    (ConnectionState.GREETED, ConnectionInput.JOIN): ConnectionState.JOINING,
    (ConnectionState.JOINING, ConnectionInput.OPENED): ConnectionState.JOINED,
    (ConnectionState.JOINING, ConnectionInput.FAILED): ConnectionState.GREETED,
    (ConnectionState.NEW, ConnectionInput.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.GREETED, ConnectionInput.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.JOINING, ConnectionInput.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.JOINED, ConnectionInput.CLOSE): ConnectionState.CLOSED,
}


@dataclass(slots=True)
class Reception:
    """Objects that all connections of this daemon share."""

    welcome: Welcome  # the daemon's address in it may change
    sessions: Sessions
    status: Callable[[int], Awaitable[dict[str, Any]]]  # ledger rows -> report
    condition: Condition
    cordon: Cordon
    tracing: Tracing
    count: Callable[[str], None]
    closed: Callable[["Connection"], None]
    # Connections that have not read all of a report: each holds one, of some megabytes.
    long_answers: "FairTable[Connection]" = field(default_factory=lambda: FairTable(MAX_LONG))


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Process id and user id of the other end when it connected, from the kernel."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


class Connection:
    """Owns the client's socket. Ends when the client closes it or its process ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        reception: Reception,
        moved: Callable[["Connection"], None],
    ) -> None:
        """`moved` is called after each change of `state`. Raises: OSError; then the caller still
        owns `sock`."""
        self._loop, self._reception, self._moved = loop, reception, moved
        self.state = ConnectionState.NEW
        self.session: LocalSession | None = None
        self._client = ""
        self._version = VERSION  # of its messages
        self._reporting: asyncio.Task[None] | None = None
        pid, self.uid = credentials(sock)
        self._channel = PacketChannel(
            loop, sock, on_packet=self._packet, on_end=self._ended, count=reception.count
        )
        self._pidfd = _watch_process(loop, pid, self._process_ended)

    def joined(self, session: int, arena_bytes: int, descriptors: list[int]) -> None:
        """All peers are up."""
        self._step(ConnectionInput.OPENED)
        self._send(Joined(session, arena_bytes), descriptors)
        log.info("joined", session=self.session, client=self._client, number=session)

    def refused(self, error: DlcpError) -> None:
        """The join failed; the client may send another one."""
        self._step(ConnectionInput.FAILED)
        self.session = None
        self._refuse(error)

    def lost(self, error: DlcpError) -> None:
        """The session or the daemon ended, not by the client: send the reason, and close."""
        self._refuse(error)
        self.close(error)

    def close(self, why: DlcpError) -> None:
        """Close the socket and the session."""
        if self.state is ConnectionState.CLOSED:
            return
        self._step(ConnectionInput.CLOSE)
        session, self.session = self.session, None
        if session:
            self._reception.sessions.ends.leave(session, why)
        if self._reporting:
            self._reporting.cancel()
        self._reception.long_answers.discard(self)
        self._reception.tracing.release(self)
        self._channel.close()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        tell = log.info if session else log.debug  # a probe or a look is not worth a line
        tell("client_left", client=self._client, session=session, code=why.code, text=why)
        self._reception.closed(self)

    def _send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        self._channel.send(encode_for(self._version, message), descriptors)

    def _packet(self, data: bytes) -> None:
        try:
            self._handle(decode_untrusted(data))
        except DlcpError as exc:
            self._refuse(exc)

    def _handle(self, message: Message) -> None:
        """Raises: DlcpError, which the client is told."""
        if isinstance(message, Hello):
            self._greet(message)
        elif isinstance(message, Join):
            self._join(message)
        elif isinstance(message, StatusRequest):
            self._answer(message, self._send_status(message.ledger))
        elif isinstance(message, HealthRequest | CordonRequest):
            self._send_health(message)
        elif isinstance(message, TraceRequest):
            self._answer(message, self._send_trace(message))
        elif isinstance(message, ProbeRequest):
            self._answer(message, self._send_probed(message))
        else:
            raise BadMessage(f"{type(message).__name__} is not for the session socket")

    def _greet(self, hello: Hello) -> None:
        self._expect(ConnectionInput.HELLO)
        if hello.version not in SERVED:
            raise BadMessage(
                f"the client speaks version {hello.version}, this daemon {named(SERVED)}: "
                f"install the same release of both"
            )
        self._step(ConnectionInput.HELLO)
        self._client, self._version = hello.client, hello.version
        if hello.version != VERSION:
            self._reception.count("client_older")
            log.info("client_older", client=hello.client, version=hello.version)
        self._send(replace(self._reception.welcome, version=hello.version))

    def _join(self, join: Join) -> None:
        self._expect(ConnectionInput.JOIN)
        self.session = self._reception.sessions.joining.join(join, self)
        self._step(ConnectionInput.JOIN)
        log.info("joining", session=self.session, client=self._client, world=join.world_size)

    def _answer(self, request: Message, answer: Coroutine[Any, Any, None]) -> None:
        """Run `answer`; one request at a time. Raises: BadMessage, TooMany."""
        name = type(request).__name__
        if self.state is ConnectionState.NEW or (self._reporting and not self._reporting.done()):
            answer.close()
            if self.state is ConnectionState.NEW:
                raise BadMessage(f"{name} comes after Hello")
            raise TooMany(f"one {name} at a time: wait for the answer")
        self._reporting = self._loop.create_task(answer)

    def _send_health(self, request: HealthRequest | CordonRequest) -> None:
        """Raises: BadMessage, NotPermitted."""
        if self.state is ConnectionState.NEW:
            raise BadMessage(f"{type(request).__name__} comes after Hello")
        if isinstance(request, CordonRequest):
            self._reception.cordon.change(request, self.uid)
        self._send(self._reception.condition.health())

    async def _send_status(self, ledger: int) -> None:
        report = await self._reception.status(ledger)
        parts = Status.parts(report)
        if len(parts) > 1 and self._version < LONG_SINCE:
            text = f"this status is too long for messages of version {self._version}"
            self._refuse(TooMany(f"{text}: use the dlcpctl of the daemon's release"))
            return
        if len(parts) > 1 and (leaves := self._reception.long_answers.add(self.uid, self)):
            leaves.lost(TooMany("others ask for long reports, and this one was not read"))
        while parts:
            self._send(parts.pop(0))
            await self._channel.all_taken()
        self._reception.long_answers.discard(self)

    async def _send_trace(self, request: TraceRequest) -> None:
        try:
            report = await self._reception.tracing.ask(self, request)
        except DlcpError as exc:
            self._refuse(exc)
        else:
            self._send(Traced.of(report))

    async def _send_probed(self, request: ProbeRequest) -> None:
        try:
            if self.uid not in (0, os.getuid()):
                raise NotPermitted(f"user id {self.uid} may not probe; dlcpd's own and root may")
            planner = self._reception.sessions.planner
            report = await planner.probing.run(request.job, adopt=request.adopt)
        except DlcpError as exc:
            self._refuse(exc)
        else:
            self._send(Probed.of(report))

    def _expect(self, event: ConnectionInput) -> None:
        if (self.state, event) not in TRANSITIONS:
            raise BadMessage(f"{event.name.title()} is not expected when {self.state.name.lower()}")

    def _step(self, event: ConnectionInput) -> None:
        self.state = TRANSITIONS[self.state, event]
        self._moved(self)

    def _refuse(self, error: DlcpError) -> None:
        self._reception.count(f"refused_{error.code}")
        log.debug("refused", client=self._client, code=error.code, text=error)
        self._send(refusal(error))

    def _ended(self, why: str) -> None:
        self.close(SessionClosed(f"the client {why}"))

    def _process_ended(self) -> None:
        """The client's process is gone, even if a child it forked still holds the socket."""
        self.close(SessionClosed("the client's process ended"))


def refusal(error: DlcpError) -> Refused:
    """The answer to a request that failed."""
    return Refused(error.code, str(error)[:MAX_REFUSAL])


def _watch_process(
    loop: asyncio.AbstractEventLoop, pid: int, on_end: Callable[[], None]
) -> int | None:
    """Call `on_end` when process `pid` ends. Returns its pidfd; None: it has ended, is not visible
    here (another container), or cannot be watched."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        loop.call_soon(on_end)  # it has ended already
        return None
    except OSError:
        return None
    try:
        loop.add_reader(pidfd, on_end)
    except OSError:
        os.close(pidfd)
        return None
    return pidfd
