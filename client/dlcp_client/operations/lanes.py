"""The lanes to the engines. The threads that wait for an outcome read them; there is no reader
thread.

Leader and followers: the first waiting thread reads the sockets and passes every frame to the table
of operations. The others sleep until the table changes; when the leader has its outcome, one of
them takes over. A reader thread would cost each operation two thread switches, and each step of the
trainer GIL hand-offs.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.patience import Patience
from dlcpd.contract.errors import (
    BadMessage,
    DaemonLost,
    DeadlineExceeded,
    DlcpError,
    SessionClosed,
    error_for,
)
from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.messages import MAX_FRAME, Refused
from dlcpd.ipc.seqpacket import close_all, receive_message, send_now

# Seconds of one sleep. A Ctrl-C just before poll() enters the kernel does not wake it; Python then
# raises KeyboardInterrupt only after the next wake-up.
MAX_POLL: Final = 1.0
LEAVE_TIMEOUT: Final = 1.0  # seconds; a stopped daemon must not block its client's close
REASON_TIMEOUT: Final = 1.0  # seconds for the control process to say why a lane has ended
SEND_SLICE: Final = 0.05  # seconds between checks of the lane while the engine does not read
_PEEK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)  # int: enums are slow to combine
_NOW: Final = int(socket.MSG_DONTWAIT)
Done = Callable[[], bool]
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL | select.POLLRDHUP


class Lanes:
    """Owns a lane per engine and the control connection; shares the operation table."""

    def __init__(
        self, lanes: Sequence[socket.socket], control: ControlConnection, table: Operations
    ) -> None:
        self._patience = Patience(control.waiting_for, table.pace)
        self._lanes, self._control, self._table = tuple(lanes), control, table
        self._leader: int | None = None  # thread id
        self._closed = False
        self._engines = {lane.fileno(): engine for engine, lane in enumerate(lanes)}
        self._ended: set[int] = set()  # engines whose lane has ended
        self._buffer = memoryview(bytearray(MAX_FRAME + 1))
        self._poll = select.poll()
        for lane in lanes:
            self._poll.register(lane, select.POLLIN)
        self._poll.register(control.socket, select.POLLRDHUP)

    def send(self, packet: bytes, until: float, engines: Collection[int] = (0,)) -> None:
        """Send one packet to each of `engines`.

        Raises: DeadlineExceeded, nothing was sent; the error that ended the session. It also ends
        if only some of the engines took the packet in time.
        """
        for position, engine in enumerate(engines):
            lane = self._lanes[engine]
            while True:
                try:
                    if send_now(lane, packet):
                        break
                    self._wait_writable(lane, until)
                except DeadlineExceeded as exc:
                    if position:
                        self._table.fail(DeadlineExceeded(str(exc)))  # a new one without traceback,
                        # which would keep the memory of the unsent operation alive
                    raise
                except OSError:
                    self.pump()  # the engine's last message may still be in the lane
                    self._lost()
                    self._table.raise_if_over()

    def pump(self) -> None:
        """Process the frames that have arrived, without waiting."""
        self._lead(None, 0.0)

    def wait_until(self, done: Done, until: float) -> bool:
        """Process frames until `done()`; False if the monotonic time `until` passed first.

        `done` is called with the table's lock held.
        """
        while (left := until - time.monotonic()) > 0:
            if self._lead(done, min(left, MAX_POLL)):
                return True
            self._patience.look(self._table.oldest())
        with self._table.lock:
            return done()

    def close(self) -> None:
        """End the session on this side; waiting threads raise SessionClosed.

        The control connection closes first, and the engine then ends the lane: so the daemon knows
        that this client left on purpose, and tells the peers.
        """
        self._table.fail(SessionClosed("the session is closed; connect again to go on"))
        changed = self._table.changed
        with self._table.lock:
            if self._closed:
                return
            self._closed = True
            _shut(self._control.socket)  # wakes the leader from poll()
            changed.wait_for(lambda: self._leader is None, timeout=LEAVE_TIMEOUT)
        self._await_end()
        self._close_lanes()
        self._control.close()

    def abandon(self) -> None:
        """In a forked child: drop the copies of the sockets; the parent keeps using its own."""
        self._closed, self._leader = True, None
        self._close_lanes()
        self._control.close()

    def _close_lanes(self) -> None:
        for lane in self._lanes:
            lane.close()

    def _await_end(self) -> None:
        """Read the lanes to their ends, for at most LEAVE_TIMEOUT."""
        over = time.monotonic() + LEAVE_TIMEOUT
        for engine, lane in enumerate(self._lanes):
            ended = select.poll()
            ended.register(lane, select.POLLIN)
            self._drain(engine, None)
            while engine not in self._ended and (left := over - time.monotonic()) > 0:
                ended.poll(left * 1000)
                self._drain(engine, None)

    def _lead(self, done: Done | None, timeout: float) -> bool:
        """Read once, or let another thread read, for at most `timeout` seconds. Returns done();
        None: it is never done."""
        table, me = self._table, threading.get_ident()
        if table.error is not None:
            table.end_late(time.monotonic())
        try:
            with table.lock:
                if done is not None and done():
                    return True
                if self._leader is not None or self._closed:
                    if timeout > 0:
                        table.changed.wait(timeout)
                    return done is not None and done()
                self._leader = me
            return self._read(timeout, done)
        finally:
            with table.lock:
                if self._leader == me:
                    self._leader = None
                    if table.changed.sleeping:
                        table.changed.notify_all()

    def _read(self, timeout: float, done: Done | None) -> bool:
        """Read all sockets once. Whether done() was True after a frame."""
        over = gone = False
        for descriptor, events in self._poll.poll(timeout * 1000):
            engine = self._engines.get(descriptor)
            if engine is None:
                gone = bool(events & _GONE)
            else:
                over = self._drain(engine, done) or over
        if gone or self._ended:
            self._lost()
        return over

    def _drain(self, engine: int, done: Done | None) -> bool:
        """Process the frames that an engine sent, until `done()`. False: it was not.

        A frame is peeked, processed, and only then removed from the socket: an interrupt (Ctrl-C)
        in between repeats a frame and never loses one.
        """
        lane, table = self._lanes[engine], self._table
        while True:
            try:
                size = lane.recv_into(self._buffer, 0, _PEEK)
            except BlockingIOError:
                return False
            except OSError:
                break
            if not size:
                break
            with table.lock:
                try:
                    table.handle_locked(decode_untrusted(self._buffer[:size]), engine)
                except BadMessage as exc:
                    table.fail(BadMessage(f"the engine sent a bad frame: {exc}"))
                if table.changed.sleeping:
                    table.changed.notify_all()
                over = done is not None and done()
            try:
                lane.recv_into(self._buffer, 1, _NOW)
            except OSError:  # it ended in between, with unread data of this client
                break
            if over:
                return True
        self._ended.add(engine)
        return False

    def _wait_writable(self, lane: socket.socket, until: float) -> None:
        if time.monotonic() >= until:
            raise DeadlineExceeded(
                "this host's dlcpd takes no further operation, and deadline= is over: its engine "
                "is stopped or starved of CPU; see its log, then restart the job"
            )
        self.pump()
        writable = select.poll()
        writable.register(lane, select.POLLOUT)
        writable.poll(SEND_SLICE * 1000)

    def _lost(self) -> None:
        """Fail all operations: the daemon is gone. Asks the control process for the reason."""
        if self._closed or (self._table.over and not self._table.waiting):
            return
        self._table.fail(
            self._table.error
            or self._reason_told()
            or DaemonLost(
                f"dlcpd ended while the session was open: {self._control.how_it_ended()}. "
                "Operations in flight are lost; restart the job from its last checkpoint"
            )
        )

    def _reason_told(self) -> DlcpError | None:
        """The control process's reason for the end, or None. It may hear of an engine's end just
        after the lane has ended here; if it has ended itself, the read fails at once."""
        self._control.socket.settimeout(REASON_TIMEOUT)
        try:
            message, descriptors = receive_message(self._control.socket)
        except (OSError, BadMessage):
            return None
        close_all(descriptors)
        return error_for(message.code, message.text) if isinstance(message, Refused) else None


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end has already closed
