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
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.traffic import DROP_RANKS, traffic_classes
from dlcpd.core.datagram import Bytes, Control, Received, Transmit
from dlcpd.core.flow import STAMPED
from dlcpd.core.space import microseconds
from dlcpd.core.wire import HEADER_SIZE, MAX_TAGS
from dlcpd.core.wire_batch import SENT_AT
from dlcpd.io import mmsg
from dlcpd.io.config import EngineConfig
from dlcpd.io.receive_ring import ReceiveRing
from dlcpd.io.route_probe import ICMP_ERRORS, RouteProbe

MAX_UDP: Final = 65507  # bytes of payload of one IPv4 UDP message (RFC 768, RFC 791)
MAX_RUN: Final = 64  # segments per GSO message on every kernel that has it (udp(7))
MAX_ROWS: Final = 1600  # datagrams of one Transmit; above core's largest batch
RECEIVE_ROWS: Final = 1440  # datagrams per receive call, 2 MB: half or twice as many is no faster
_BOTH: Final = ("both", "shuffled")  # settings that show drop ranks by DSCP and by ECN
MAX_REFUSED: Final = 64  # pending ICMP errors skipped per batch
USELESS_GRO: Final = 8  # full receive calls in a row without a joined message: 256 datagrams


class UdpPath:
    """Path number `index` of an engine. Non-blocking.

    `counters` gets what was refused or failed here. Raises AddressUnavailable.
    """

    def __init__(self, index: int, config: EngineConfig, counters: Counter[str]) -> None:
        self.index = index
        self.counters = counters
        host, port = config.paths[index]
        self.width = HEADER_SIZE + config.segment_size
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = _bound(self.family, host, port)
        self.address = (host, self.socket.getsockname()[1])
        self.receive_buffer = _size_buffers(self.socket, config.receive_buffer)
        self.gso = config.offload and self._offload(mmsg.UDP_SEGMENT, self.width)
        self.gro = config.offload and self._offload(mmsg.UDP_GRO, 1)
        self.probe = RouteProbe(self.socket)
        self.backlog: deque[Transmit] = deque()
        self._run = min(MAX_UDP // self.width, MAX_RUN)
        self._peers: dict[int, tuple[Bytes, tuple[str, int]]] = {}
        self._tos = tos_of_tags(config.drop_rank)
        self._tos_messages = np.stack([mmsg.tos_control(self.family, t) for t in self._tos])
        self._receive_tos()
        self._prepare_send()
        self._prepare_receive()
        self._loss = config.inject_loss  # thrown away on arrival, as a lossy network would
        self._rng = np.random.default_rng((config.inject_seed, index))

    def fileno(self) -> int:
        return self.socket.fileno()

    def connect(self, peer: int, host: str, port: int) -> None:
        """Datagrams for flow `peer` go to this address."""
        self._peers[peer] = (mmsg.pack_address(self.family, host, port), (host, port))
        self._aim = (-1, -1)

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
        self._iov_counts = self._messages["iov_count"]
        self._aim = (-1, -1)  # peer and tag that all messages are addressed to
        self._mixed = False  # whether the batch has several tags
        self._first_rows = np.zeros(0, np.intp)  # of each message in the batch
        self._tos_at = mmsg.address(self._tos_messages)
        self._header_offsets = np.arange(MAX_ROWS, dtype=np.uint64) * np.uint64(HEADER_SIZE)
        self._set_run(self._run if self.gso else 1)

    def _set_run(self, run: int) -> None:
        self._send_run = run
        self._full_runs = np.arange(0, MAX_ROWS * run, run, dtype=np.intp)
        self._cut(self._full_runs, MAX_ROWS * run)

    def _prepare_receive(self) -> None:
        run = self._run if self.gro else 1
        self._ring = ReceiveRing(self.index, self.width, run, RECEIVE_ROWS)
        self.drained = True  # whether the last receive left nothing behind

    def _stop_joining(self) -> None:
        """GRO joins nothing on this device: give every datagram a message of its own, so that
        one call takes in as many as the raster has rows."""
        self.socket.setsockopt(socket.IPPROTO_UDP, mmsg.UDP_GRO, 0)
        self.gro = False
        self.counters["gro_useless"] += 1
        self._prepare_receive()

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
        stamps = batch.headers[:STAMPED, SENT_AT]
        stamps[stamps != 0] = microseconds(time.monotonic()) or 1  # earlier batches took a while
        count = self._fill(batch, rows)
        done = refused = 0
        while done < count:
            try:
                done += mmsg.send_many(self.fileno(), self._messages_at, done, count - done)
            except OSError as exc:
                if exc.errno in (errno.EAGAIN, errno.ENOBUFS):
                    break
                if exc.errno in ICMP_ERRORS and not (refused := refused + 1) > MAX_REFUSED:
                    continue  # of an earlier probe; taking note of it has cleared it
                if self._send_run > 1 and exc.errno in (errno.EIO, errno.EINVAL):
                    done = self._rows_of(done, rows)
                    return done + self._send_without_gso(batch, done)
                self.counters[f"send_{errno.errorcode.get(exc.errno or 0, 'error')}"] += 1
                done += 1  # this message is lost, as on any other network
        self._restore(rows)
        return self._rows_of(done, rows)

    def _rows_of(self, messages: int, rows: int) -> int:
        """Datagrams of the first so many messages of a batch."""
        return int(self._first_rows[messages]) if messages < len(self._first_rows) else rows

    def _send_without_gso(self, batch: Transmit, done: int) -> int:
        """The route's device cannot segment: from now on one datagram per message."""
        self._restore(len(batch.segments))
        rest = _rest(batch, done)
        self.gso = False
        self.counters["gso_unavailable"] += 1
        self.socket.setsockopt(socket.IPPROTO_UDP, mmsg.UDP_SEGMENT, 0)
        self._set_run(1)
        return self._send(rest)

    def _fill(self, batch: Transmit, rows: int) -> int:
        """Point the prepared messages at the batch; returns how many there are."""
        size = batch.segment_size
        payloads = self._payloads_in_iov[:rows]
        np.add(
            self._header_offsets[:rows], np.uint64(mmsg.address(batch.headers)),
            out=self._headers_in_iov[:rows],
        )  # fmt: skip
        np.multiply(batch.segments, size, out=payloads, casting="unsafe")
        payloads += np.uint64(mmsg.address(batch.payload))
        self._iov[rows - 1, 1, 1] = min(size, len(batch.payload) - int(batch.segments[-1]) * size)
        return self._into_messages(batch, rows)

    def _into_messages(self, batch: Transmit, rows: int) -> int:
        """Cut the batch into messages of one tag each; returns how many."""
        run, tags = self._send_run, batch.tags
        first_tag = int(tags[0])
        self._mixed = not (tags == first_tag).all()
        if not self._mixed:
            if self._aim != (batch.peer, first_tag):
                self._take_aim(batch.peer, first_tag)
            count = -(-rows // run)
            self._first_rows = self._full_runs[:count]
            self._iov_counts[count - 1] = 2 * (rows - (count - 1) * run)
            return count
        stops = [0, *(np.flatnonzero(tags[1:] != tags[:-1]) + 1).tolist(), rows]
        self._first_rows = np.concatenate([np.arange(a, b, run) for a, b in pairwise(stops)])
        self._take_aim(batch.peer, first_tag)
        self._cut(self._first_rows, rows)
        self._messages["control"][: len(self._first_rows)] = self._tos_at + tags[
            self._first_rows
        ] * np.uint64(self._tos_messages.shape[1])
        return len(self._first_rows)

    def _take_aim(self, peer: int, tag: int) -> None:
        """All messages carry address and tag of what was sent last: most often it is next, too."""
        self._aim = peer, tag
        name, _ = self._peers[peer]
        self._messages["name"], self._messages["name_size"] = mmsg.address(name), len(name)
        self._messages["control"] = self._tos_at + tag * self._tos_messages.shape[1]

    def _cut(self, first_rows: NDArray[np.intp], rows: int) -> None:
        """Let message i begin with row `first_rows[i]`, and the last end before `rows`."""
        count = len(first_rows)
        self._messages["iov"][:count] = self._iov_at + first_rows.astype(np.uint64) * 32
        self._iov_counts[:count] = 2 * np.diff(first_rows, append=rows)

    def _restore(self, rows: int) -> None:
        self._iov[rows - 1, 1, 1] = self.width - HEADER_SIZE
        count, run = len(self._first_rows), self._send_run
        if self._mixed:
            self._cut(self._full_runs[:count], count * run)
            self._aim = (-1, -1)
        else:
            self._iov_counts[count - 1] = 2 * run

    def send_control(self, control: Control) -> None:
        """One control datagram; a full send buffer loses it, its timer repeats it."""
        peer = self._peers.get(control.peer)
        if peer is None:
            return
        byte = self._tos[control.tag].to_bytes(4, "little")
        tos = [(socket.IPPROTO_IP, socket.IP_TOS, byte)]
        if self.family == socket.AF_INET6:
            tos = [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, byte)]
        for _ in range(MAX_REFUSED):
            try:
                self.socket.sendmsg([control.data], tos, mmsg.MSG_DONTWAIT, peer[1])
            except OSError as exc:
                if exc.errno in ICMP_ERRORS:
                    continue  # of an earlier probe, and not about this one
                self.counters[f"send_{errno.errorcode.get(exc.errno or 0, 'error')}"] += 1
            return

    # --- in -------------------------------------------------------------------------

    def receive(self) -> Received | None:
        """What waits, up to RECEIVE_ROWS datagrams; None when nothing does.

        The batch points into this object's buffer: use it before the next call.
        """
        batch, self.drained = self._receive()
        if self.drained and self.gro and self._ring.full_calls >= USELESS_GRO:
            self._stop_joining()
        return self._lose(batch) if self._loss and batch is not None else batch

    def _receive(self) -> tuple[Received | None, bool]:
        try:
            return self._ring.receive(self.fileno())
        except OSError as exc:
            if exc.errno not in ICMP_ERRORS:
                raise
            return None, False  # of a probe; what waits behind it wakes us again

    def _lose(self, batch: Received) -> Received:
        keep = self._rng.random(len(batch.index)) >= self._loss
        kept = [d for d in batch.strays if self._rng.random() >= self._loss]
        lost = len(batch.index) - int(keep.sum()) + len(batch.strays) - len(kept)
        self.counters["injected_loss"] += lost
        return replace(batch, index=batch.index[keep], lengths=batch.lengths[keep], strays=kept)


def tos_of_tags(drop_rank: str = "both") -> list[int]:
    """The TOS byte of each tag: DSCP and ECN of its class and drop rank, as far as
    `drop_rank` (a setting of [network]) lets them show it.

    A tag that the table lacks is sent as its class's last drop rank, or as the last class.
    """
    by_dscp, by_ecn = drop_rank in ("dscp", *_BOTH), drop_rank in ("ecn", *_BOTH)
    classes = list(traffic_classes().values())
    rows = [classes[min(tag // DROP_RANKS, len(classes) - 1)] for tag in range(MAX_TAGS)]
    ranks = [min(tag % DROP_RANKS, len(row.dscp) - 1) for tag, row in enumerate(rows)]
    return [
        row.dscp[d * by_dscp] << 2 | row.ecn[d * by_ecn] for row, d in zip(rows, ranks, strict=True)
    ]


def _rest(batch: Transmit, sent: int) -> Transmit:
    return replace(
        batch, headers=batch.headers[sent:], segments=batch.segments[sent:], tags=batch.tags[sent:]
    )


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
