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

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.datagram import Control, Received, Transmit
from dlcpd.core.wire import HEADER_SIZE
from dlcpd.io import mmsg

MAX_UDP: Final = 65507  # bytes of payload of one IPv4 UDP message (RFC 768, RFC 791)
MAX_RUN: Final = 64  # segments per GSO message on every kernel that has it (udp(7))
MAX_ROWS: Final = 1024  # datagrams of one Transmit; above core's largest batch
RECEIVE_ROWS: Final = 720  # datagrams per receive call: ~1 MiB, what a core's L2 holds
CONTROL_SIZE: Final = 128  # bytes of control messages per received message
_COUNTING: Final = np.arange(MAX_ROWS, dtype=np.uint64)
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
        self._peers: dict[int, tuple[np.ndarray, tuple[str, int]]] = {}
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
        self._set_run(self._run if self.gso else 1)

    def _set_run(self, run: int) -> None:
        self._send_run = run
        first = np.arange(MAX_ROWS, dtype=np.uint64) * run
        self._messages["iov"] = mmsg.address(self._iov) + first * 32
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
        self._grid = np.arange(len(self._rows)).reshape(count, self._receive_run)

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
                done += mmsg.send_many(self.fileno(), self._messages, done, count - done)
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
        iov = self._iov
        np.multiply(_COUNTING[:rows], HEADER_SIZE, out=iov[:rows, 0, 0])
        iov[:rows, 0, 0] += np.uint64(mmsg.address(batch.headers))
        np.multiply(batch.segments, size, out=iov[:rows, 1, 0], casting="unsafe")
        iov[:rows, 1, 0] += np.uint64(mmsg.address(batch.payload))
        iov[rows - 1, 1, 1] = min(size, len(batch.payload) - int(batch.segments[-1]) * size)
        count = -(-rows // run)
        name, _ = self._peers[batch.peer]
        messages = self._messages[:count]
        messages["name"] = mmsg.address(name)
        messages["name_size"] = len(name)
        messages["control"] = mmsg.address(self._tos_messages[batch.traffic_class])
        messages["iov_count"][-1] = 2 * (rows - (count - 1) * run)
        return count

    def _restore(self, rows: int) -> None:
        self._iov[rows - 1, 1, 1] = self.width - HEADER_SIZE
        self._messages["iov_count"] = 2 * self._send_run

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
        arrivals = self._arrivals
        arrivals["control_size"] = CONTROL_SIZE
        count = mmsg.receive_many(self.fileno(), arrivals)
        if not count:
            return None
        sizes = arrivals["size"][:count].astype(np.intp)
        control = self._control[:count]
        joined = control[:, _SECOND_KIND] == mmsg.UDP_GRO
        index, lengths, strays = self._raster(sizes, joined, control)
        tos = np.where(joined, control[:, _THIRD_VALUE], control[:, _SECOND_VALUE]) & _CE
        batch = Received(
            self.index, now - self._waited(control[-1]), self._rows, index, lengths, strays,
            ce=int((tos == _CE).sum()),
        )  # fmt: skip
        return self._lose(batch) if self._loss else batch

    def _raster(
        self, sizes: np.ndarray, joined: np.ndarray, control: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[bytes]]:
        """Row numbers and lengths of all datagrams; copies of those off the raster."""
        width, count = self.width, len(sizes)
        if (sizes == self._receive_run * width).all():  # the fast path: nothing but full bursts
            total = count * self._receive_run
            return self._grid.reshape(-1)[:total], np.full(total, width, np.intp), []
        stride = np.where(joined, control[:, _SECOND_VALUE], sizes)
        fits = (sizes <= width) | (stride == width)
        strays = [d for i in np.flatnonzero(~fits).tolist() for d in self._split(i, sizes, stride)]
        counts = np.where(fits, -(-sizes // width), 0)
        mask = self._grid[0] < counts[:, None]
        lengths = np.full(mask.shape, width, np.intp)
        has = counts > 0
        lengths[has, counts[has] - 1] = sizes[has] - (counts[has] - 1) * width
        return self._grid[:count][mask], lengths[mask], strays

    def _split(self, message: int, sizes: np.ndarray, stride: np.ndarray) -> list[bytes]:
        """A joined message of small (control) datagrams."""
        flat = self._rows.reshape(-1)
        start, step = message * self._receive_run * self.width, max(int(stride[message]), 1)
        end = start + int(min(sizes[message], self._receive_run * self.width))
        return [flat[at : min(at + step, end)].tobytes() for at in range(start, end, step)]

    @staticmethod
    def _waited(control: np.ndarray) -> float:
        """Seconds since the kernel got the message: time in this host, not in the network."""
        seconds, nanoseconds = control[_STAMP].copy().view("<i8").tolist()
        return min(max(time.time() - (seconds + nanoseconds * 1e-9), 0.0), 1.0)

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
