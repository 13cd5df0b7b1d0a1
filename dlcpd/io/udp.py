"""One UDP socket: one local end of one path. Batches in, batches out.

With GSO the kernel cuts a burst into datagrams, with GRO it joins them again: one
message carries up to `per_message` datagrams. Without (an old kernel, a device without
checksum offload, or `offload = false`) a message is one datagram, and sendmmsg still
batches the system calls.
"""

import errno
import socket
import time
from collections import Counter, deque
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.bitmap import Segments
from dlcpd.core.datagram import Bytes, Control, Received, Transmit
from dlcpd.core.wire import HEADER_SIZE, Kind
from dlcpd.io import mmsg

MAX_UDP: Final = 65507  # bytes of payload of one IPv4 UDP message (RFC 768, RFC 791)
MAX_RUN: Final = 64  # segments per GSO message on every kernel that has it (udp(7))
MAX_ROWS: Final = 1600  # datagrams of one Transmit; above core's largest batch
RECEIVE_ROWS: Final = 1440  # datagrams per receive call: ~1 MiB, what a core's L2 holds
CONTROL_SIZE: Final = 128  # bytes of control messages per received message
_WORD: Final = 4
# Offsets (32-bit words) in the received control data. The order is the kernel's: socket-level
# time stamp (16 + 16 bytes), then UDP_GRO (16 + 4, padded to 24; only on joined messages), then TOS.
_STAMP: Final = slice(4, 8)
_SECOND: Final = 8
_SECOND_KIND, _SECOND_VALUE = _SECOND + 3, _SECOND + 4
_THIRD_VALUE: Final = _SECOND + 6 + 4
_CE: Final = 3


class UdpPath:
    """Non-blocking. `counters` gets what was refused or failed here."""

    def __init__(
        self, index: int, host: str, port: int, *, segment_size: int, receive_buffer: int,
        offload: bool, counters: Counter[str],
    ) -> None:  # fmt: skip
        self.index = index
        self.counters = counters
        self.width = HEADER_SIZE + segment_size
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = _bound(self.family, host, port)
        self.address = (host, self.socket.getsockname()[1])
        self.receive_buffer = _size_buffers(self.socket, receive_buffer)
        self.gso = offload and self._offload(mmsg.UDP_SEGMENT, self.width)
        self.gro = offload and self._offload(mmsg.UDP_GRO, 1)
        self.backlog: deque[Transmit] = deque()
        self._run = min(MAX_UDP // self.width, MAX_RUN)
        self._peers: dict[int, tuple[Bytes, tuple[str, int]]] = {}
        classes = traffic_classes().values()
        self._tos = [row.dscp << 2 | row.ecn for row in classes]
        self._tos_messages = [mmsg.tos_control(self.family, tos) for tos in self._tos]
        self._receive_tos()
        self._prepare_send()
        self._prepare_receive()
        self._loss = 0.0

    def inject_loss(self, fraction: float, seed: int) -> None:
        """Throw `fraction` of arriving datagrams away, as a lossy network would; counted."""
        self._loss, self._rng = fraction, np.random.default_rng(seed)

    def fileno(self) -> int:
        return self.socket.fileno()

    def connect(self, peer: int, host: str, port: int) -> None:
        """Datagrams for flow `peer` go to this address."""
        self._peers[peer] = (mmsg.pack_address(self.family, host, port), (host, port))

    def disconnect(self, peer: int) -> None:
        """Forget a flow."""
        self._peers.pop(peer, None)
        self.backlog = deque(batch for batch in self.backlog if batch.peer != peer)

    # --- set-up ---------------------------------------------------------------------

    def _offload(self, option: int, value: int) -> bool:
        try:
            self.socket.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
        return True

    def _receive_tos(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, mmsg.SO_TIMESTAMPNS, 1)
        if self.family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        else:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)

    def _prepare_send(self) -> None:
        """Everything about a batch that does not change from one to the next."""
        self._iov = np.zeros((MAX_ROWS, 2, 2), np.uint64)
        self._iov[:, 0, 1] = HEADER_SIZE
        self._iov[:, 1, 1] = self.width - HEADER_SIZE
        self._messages = np.zeros(MAX_ROWS, mmsg.MSGHDR)
        self._messages["control_size"] = 24
        self._messages_at = mmsg.address(self._messages.view(np.uint8))
        self._iov_at = mmsg.address(self._iov)
        self._headers_in_iov, self._payloads_in_iov = self._iov[:, 0, 0], self._iov[:, 1, 0]
        self._names, self._name_sizes = self._messages["name"], self._messages["name_size"]
        self._controls, self._iov_counts = self._messages["control"], self._messages["iov_count"]
        self._header_offsets = np.arange(MAX_ROWS, dtype=np.uint64) * np.uint64(HEADER_SIZE)
        self._set_run(self._run if self.gso else 1)

    def _set_run(self, run: int) -> None:
        self._send_run = run
        first = np.arange(MAX_ROWS, dtype=np.uint64) * run
        self._messages["iov"] = self._iov_at + first * 32
        self._messages["iov_count"] = 2 * run

    def _prepare_receive(self) -> None:
        self._receive_run = self._run if self.gro else 1
        self._message_count = RECEIVE_ROWS // self._receive_run
        count, pitch = self._message_count, self._receive_run * self.width
        self._rows = np.zeros((count * self._receive_run, self.width), np.uint8)
        self._control = np.zeros((count, CONTROL_SIZE // _WORD), np.int32)
        number = np.arange(count, dtype=np.uint64)
        self._in_iov = np.zeros((count, 2), np.uint64)
        self._in_iov[:, 0] = mmsg.address(self._rows) + number * pitch
        self._in_iov[:, 1] = pitch
        self._arrivals = np.zeros(count, mmsg.MSGHDR)
        self._arrivals["iov"] = mmsg.address(self._in_iov) + number * 16
        self._arrivals["iov_count"] = 1
        self._arrivals["control"] = mmsg.address(self._control) + number * CONTROL_SIZE
        self._arrivals_at = mmsg.address(self._arrivals.view(np.uint8))
        self._control_sizes, self._sizes = self._arrivals["control_size"], self._arrivals["size"]
        self._flat = memoryview(self._rows).cast("B")
        self._numbers = np.arange(len(self._rows), dtype=np.intp)
        self._full = np.full(len(self._rows), self.width, np.intp)
        self.drained = True  # whether the last receive left nothing behind

    # --- out ------------------------------------------------------------------------

    def send(self, batch: Transmit) -> None:
        """Hand a batch to the kernel; what it does not take now waits in `backlog`."""
        if self.backlog:
            self.backlog.append(batch)
            return
        sent = self._send(batch)
        if sent < len(batch.segments):
            self.backlog.append(_rest(batch, sent))

    def send_backlog(self) -> bool:
        """Try again; True when nothing waits any more."""
        while self.backlog:
            batch = self.backlog.popleft()
            sent = self._send(batch)
            if sent < len(batch.segments):
                self.backlog.appendleft(_rest(batch, sent))
                return False
        return True

    def _send(self, batch: Transmit) -> int:
        """Datagrams the kernel took, or that are lost for good."""
        rows = len(batch.segments)
        count = self._fill(batch, rows)
        done = 0
        while done < count:
            try:
                done += mmsg.send_many(self.fileno(), self._messages_at, done, count - done)
            except OSError as exc:
                if exc.errno in (errno.EAGAIN, errno.ENOBUFS):
                    break
                if self._send_run > 1 and exc.errno in (errno.EIO, errno.EINVAL):
                    return min(done * self._send_run, rows) + self._send_without_gso(batch, done)
                self.counters[f"send_{errno.errorcode.get(exc.errno or 0, 'error')}"] += 1
                done += 1  # this message is lost, as on any other network
        self._restore(rows)
        return min(done * self._send_run, rows)

    def _send_without_gso(self, batch: Transmit, done: int) -> int:
        """The route's device cannot segment: from now on one datagram per message."""
        self._restore(len(batch.segments))
        rest = _rest(batch, done * self._send_run)
        self.gso = False
        self.counters["gso_unavailable"] += 1
        self.socket.setsockopt(socket.IPPROTO_UDP, mmsg.UDP_SEGMENT, 0)
        self._set_run(1)
        return self._send(rest)

    def _fill(self, batch: Transmit, rows: int) -> int:
        """Point the prepared messages at the batch; returns how many there are."""
        size, run = batch.segment_size, self._send_run
        payloads = self._payloads_in_iov[:rows]
        np.add(
            self._header_offsets[:rows], np.uint64(mmsg.address(batch.headers)),
            out=self._headers_in_iov[:rows],
        )  # fmt: skip
        np.multiply(batch.segments, size, out=payloads, casting="unsafe")
        payloads += np.uint64(mmsg.address(batch.payload))
        self._iov[rows - 1, 1, 1] = min(size, len(batch.payload) - int(batch.segments[-1]) * size)
        count = -(-rows // run)
        name, _ = self._peers[batch.peer]
        self._names[:count] = mmsg.address(name)
        self._name_sizes[:count] = len(name)
        self._controls[:count] = mmsg.address(self._tos_messages[batch.traffic_class])
        self._iov_counts[count - 1] = 2 * (rows - (count - 1) * run)
        return count

    def _restore(self, rows: int) -> None:
        self._iov[rows - 1, 1, 1] = self.width - HEADER_SIZE
        self._iov_counts[-(-rows // self._send_run) - 1] = 2 * self._send_run

    def send_control(self, control: Control) -> None:
        """One control datagram; a full send buffer loses it, its timer repeats it."""
        peer = self._peers.get(control.peer)
        if peer is None:
            return
        tos = [(socket.IPPROTO_IP, socket.IP_TOS, self._tos[0].to_bytes(4, "little"))]
        if self.family == socket.AF_INET6:
            tos = [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, self._tos[0].to_bytes(4, "little"))]
        try:
            self.socket.sendmsg([control.data], tos, mmsg.MSG_DONTWAIT, peer[1])
        except OSError as exc:
            self.counters[f"send_{errno.errorcode.get(exc.errno or 0, 'error')}"] += 1

    # --- in -------------------------------------------------------------------------

    def receive(self, now: float) -> Received | None:
        """What waits, up to RECEIVE_ROWS datagrams; None when nothing does.

        The batch points into this object's buffer: use it before the next call.
        """
        self._control_sizes[:] = CONTROL_SIZE
        count = mmsg.receive_many(self.fileno(), self._arrivals_at, self._message_count)
        if not count:
            return None
        self.drained = count < self._message_count
        control = self._control[:count]
        joined = control[:, _SECOND_KIND] == mmsg.UDP_GRO
        tos = np.where(joined, control[:, _THIRD_VALUE], control[:, _SECOND_VALUE]) & _CE
        index, lengths, strays = self._raster(self._sizes[:count].tolist(), joined, control)
        arrivals = self._arrival_times(control, now)
        batch = Received(
            self.index, arrivals, self._receive_run, self._rows, index, lengths, strays,
            stray_arrival=arrivals[-1], ce=int(np.count_nonzero(tos == _CE)),
        )  # fmt: skip
        return self._lose(batch) if self._loss else batch

    def _raster(
        self, sizes: list[int], joined: NDArray[np.bool_], control: NDArray[np.int32]
    ) -> tuple[Segments, Segments, list[bytes]]:
        """Row numbers and lengths of data datagrams; copies of control and odd-sized ones.

        Loops over messages, of which there are few: a message is a whole burst.
        """
        width, run = self.width, self._receive_run
        rows, strays, short = [], [], {}
        for message, size in enumerate(sizes):
            first = message * run
            if size == run * width:
                rows.append((first, first + run))
            elif size <= width and self._flat[first * width + 1] > Kind.PULL:
                strays.append(bytes(self._flat[first * width : first * width + size]))
            elif size <= width or (joined[message] and control[message, _SECOND_VALUE] == width):
                count = -(-size // width)
                rows.append((first, first + count))
                if size != count * width:
                    short[first + count - 1] = size - (count - 1) * width
            else:
                stride = int(control[message, _SECOND_VALUE]) if joined[message] else size
                strays += self._split(message, size, stride)
        return *self._joined_rows(rows, short), strays

    def _joined_rows(
        self, rows: list[tuple[int, int]], short: dict[int, int]
    ) -> tuple[Segments, Segments]:
        if not rows:
            return self._numbers[:0], self._full[:0]
        total = sum(stop - start for start, stop in rows)
        if rows[-1][1] - rows[0][0] == total:  # no gap: the usual case
            index = self._numbers[rows[0][0] : rows[-1][1]]
        else:
            index = np.concatenate([self._numbers[start:stop] for start, stop in rows])
        if not short:
            return index, self._full[:total]
        lengths = self._full[:total].copy()
        for row, size in short.items():
            lengths[np.searchsorted(index, row)] = size
        return index, lengths

    def _split(self, message: int, size: int, stride: int) -> list[bytes]:
        """A joined message of small (control) datagrams, or one larger than the raster."""
        start, step = message * self._receive_run * self.width, max(stride, 1)
        end = start + min(size, self._receive_run * self.width)
        return [bytes(self._flat[at : min(at + step, end)]) for at in range(start, end, step)]

    @staticmethod
    def _arrival_times(control: NDArray[np.int32], now: float) -> list[float]:
        """When the kernel got each message, on the clock of `now`.

        The time since is spent in this host, not in the network. Bounded, because the
        kernel stamps with a wall clock that may be stepped.
        """
        stamps = control[:, _STAMP].copy().view("<i8")
        wall = time.time_ns()
        return [
            now - min(max(wall - (seconds * 1_000_000_000 + nanoseconds), 0) * 1e-9, 1.0)
            for seconds, nanoseconds in stamps.tolist()
        ]

    def _lose(self, batch: Received) -> Received:
        keep = self._rng.random(len(batch.index)) >= self._loss
        kept = [d for d in batch.strays if self._rng.random() >= self._loss]
        lost = len(batch.index) - int(keep.sum()) + len(batch.strays) - len(kept)
        self.counters["injected_loss"] += lost
        return replace(batch, index=batch.index[keep], lengths=batch.lengths[keep], strays=kept)


def _rest(batch: Transmit, sent: int) -> Transmit:
    return replace(batch, headers=batch.headers[sent:], segments=batch.segments[sent:])


def _bound(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise AddressUnavailable(
            f"cannot bind UDP {host} port {port}: {exc.strerror}; give [network] paths an "
            f"address of this host and a free port (0 = any)"
        ) from exc
    return sock


def _size_buffers(sock: socket.socket, wanted: int) -> int:
    """Ask for buffers, past the sysctl limit where we may; returns the receive bytes granted."""
    for force, plain in (
        (mmsg.SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (mmsg.SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, wanted)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, wanted)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles it
