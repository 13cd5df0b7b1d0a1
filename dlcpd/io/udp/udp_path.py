"""One UDP socket: one local end of one path. Batches in, batches out.

With GSO the kernel cuts a burst into datagrams, with GRO it joins them again: one
message carries many datagrams. Without (an old kernel, a device without
checksum offload, or `offload = false`) a message is one datagram, and sendmmsg still
batches the system calls.
"""

import errno
import socket
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Final

from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.pieces import LEAST_PIECE, cut
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Bytes, Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Kind
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.receiving import CompiledRing
from dlcpd.io.datapath.sending import CompiledSender
from dlcpd.io.discovery.icmp import RouteProbe
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.loss import Corrupt, RandomLoss
from dlcpd.io.udp.mmsg import MAX_UDP
from dlcpd.io.udp.receive_ring import ReceiveRing
from dlcpd.io.udp.send_ring import SendRing
from dlcpd.io.udp.sockets import ancillary, bound, offload, receive_marks, size_buffers, tos_of_tags
from dlcpd.io.udp.stranger_filter import StrangerFilter
from dlcpd.io.udp.udp_receiver import TRIES, UdpReceiver
from dlcpd.ipc import kernel_errors

USUAL: Final = HEADER_SIZE + 1408  # bytes of a datagram on Ethernet without jumbo frames
_WITH_GSO: Final = frozenset({errno.EIO, errno.EINVAL, errno.EMSGSIZE})
_WITHOUT: Final = frozenset({errno.EMSGSIZE})


class UdpPath:
    """Path number `index` of an engine. Non-blocking.

    `counters` counts refused datagrams and failed calls, `effort` system calls and datagrams.
    Raises AddressUnavailable.
    """

    def __init__(
        self,
        index: int,
        config: EngineConfig,
        counters: Counter[str],
        effort: Counter[str],
        compiled: Compiled | None = None,
        *,
        keys: Keyring | None = None,
    ) -> None:
        self.index, self._compiled = index, compiled
        self.counters, self.effort = counters, effort
        host, port = config.paths[index]
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = bound(self.family, host, port)
        self._fd = self.socket.fileno()
        self.address = (host, self.socket.getsockname()[1])
        self.receive_buffer = size_buffers(self.socket, config.receive_buffer)
        mmsg.never_fragment(self.socket)
        self.gso = config.offload and offload(self.socket, mmsg.UDP_SEGMENT, 0)
        self.strangers = StrangerFilter(self.socket, counters)
        self.probe = RouteProbe(self.socket, counters)
        self.backlog: deque[Transmit] = deque()
        self.too_big: list[tuple[int, int]] = []  # (peer, bytes) of refused datagrams
        self._peers: dict[int, tuple[Bytes, tuple[str, int]]] = {}
        self._checksums: dict[int, Checksum] = {}  # by peer; without one, checksums are 0
        self._pieces = 0  # datagrams that were cut
        self._limits: dict[int, int] = {}  # by peer: bytes of the largest datagram that passes
        by_tag = tos_of_tags(config.drop_precedence)
        self._sender = self._make_sender(by_tag)
        self._tos = [ancillary(self.family, tos) for tos in by_tag]
        receive_marks(self.socket)
        seed = config.inject_seed, index, config.engine
        self._loss, self._corrupt = (
            RandomLoss(config.inject_loss, seed),
            Corrupt(config.inject_corrupt, seed),
        )
        self._keys = keys
        self.receiver = UdpReceiver(
            self.socket, counters, effort, self._make_ring, joins=config.offload
        )

    def fileno(self) -> int:
        return self._fd

    def connect(self, peer: int, host: str, port: int) -> None:
        """Datagrams for flow `peer` go to this address."""
        self._peers[peer] = (mmsg.pack_address(self.family, host, port), (host, port))

    def seal(self, peer: int, checksum: Checksum) -> None:
        """From now on, datagrams for flow `peer` carry this checksum."""
        self._checksums[peer] = checksum

    def sealed(self, peer: int, data: bytes) -> bytes:
        """A datagram with its checksum or encryption for a flow."""
        checksum = self._checksums.get(peer)
        return data if checksum is None else checksum.sealed(data)

    def _whole(self, peer: int, data: bytes) -> bytes:
        """A datagram before it is cut into pieces."""
        return self.sealed(peer, data)

    def limit(self, peer: int, size: int) -> None:
        """`size`: largest datagram that reaches the peer, bytes; longer ones, of operations that
        began before this was known, are sent in PIECEs. 0: all are. Default: no limit."""
        if peer in self._peers:
            self._limits[peer] = size

    def disconnect(self, peer: int) -> None:
        """Forget a flow."""
        self._peers.pop(peer, None)
        self._limits.pop(peer, None)
        self._checksums.pop(peer, None)
        self.backlog = deque(batch for batch in self.backlog if batch.peer != peer)

    # --- set-up ---------------------------------------------------------------------

    def _make_sender(self, by_tag: list[int]) -> SendRing | CompiledSender:
        if self._compiled is None:
            return SendRing(self.family, by_tag)
        return CompiledSender(self._compiled.library, self.family, by_tag)

    def _make_ring(self, gro: bool) -> ReceiveRing | CompiledRing:
        if self._compiled is None:
            return ReceiveRing(
                self.index,
                USUAL,
                gro=gro,
                loss=self._loss,
                corrupt=self._corrupt,
                keys=self._keys,
            )
        return CompiledRing(
            *self._compiled, gro=gro, loss=self._loss, corrupt=self._corrupt, keys=self._keys
        )

    # --- out ------------------------------------------------------------------------

    def send(self, batch: Transmit) -> None:
        """Pass a batch to the kernel; the datagrams that it does not take now wait in `backlog`."""
        if self.backlog:
            self.backlog.append(batch)
            return
        sent = self._send(batch)
        if sent < len(batch.segments):
            self.backlog.append(batch.rest(sent))

    def send_backlog(self) -> bool:
        """Try again; True when nothing waits any more."""
        while self.backlog:
            batch = self.backlog.popleft()
            sent = self._send(batch)
            if sent < len(batch.segments):
                self.backlog.appendleft(batch.rest(sent))
                return False
        return True

    def _send(self, batch: Transmit) -> int:
        """Datagrams that the kernel took, or that are lost for good."""
        if batch.first.sent_at:  # the time has moved on while earlier batches were sent
            batch.first = batch.first._replace(sent_at=microseconds(time.monotonic()) or 1)
        if HEADER_SIZE + batch.segment_size > self._limits.get(batch.peer, MAX_UDP):
            return self._send_in_pieces(batch)
        if not self.gso:
            return self._send_singly(batch)
        done, error = self._hand_over(batch, gso=True)
        if error in (errno.EIO, errno.EINVAL):
            return done + self._send_without_gso(batch.rest(done))
        if error == errno.EMSGSIZE:
            return done + self._send_too_big(batch.rest(done))
        return done

    def _send_singly(self, batch: Transmit) -> int:
        done, error = self._hand_over(batch, gso=False)
        if error == errno.EMSGSIZE:
            return done + self._send_too_big(batch.rest(done))
        return done

    def _send_without_gso(self, batch: Transmit) -> int:
        """The route's device cannot segment: from now on one datagram per message. But older
        kernels return the same error for datagrams that are too big."""
        reported = len(self.too_big)
        sent = self._send_singly(batch)
        if len(self.too_big) == reported:
            self.gso = False
            self.counters["gso_unavailable"] += 1
        return sent

    def _send_too_big(self, batch: Transmit) -> int:
        """The device's MTU has become too small for these: report that, and send them in pieces."""
        self.counters["send_EMSGSIZE"] += 1
        self.too_big.append((batch.peer, HEADER_SIZE + batch.segment_size))
        self._limits[batch.peer] = 0
        return self._send_in_pieces(batch)

    def _send_in_pieces(self, batch: Transmit) -> int:
        """Slow, one system call per piece: only for the rest of an operation."""
        size, to = batch.segment_size, self._peers[batch.peer][1]
        headers = batch.headers()
        for row, segment in enumerate(batch.segments.tolist()):
            start = segment * size
            payload = batch.payload[start : start + size].tobytes()
            data = headers[row].tobytes() + payload
            if not self._send_cut(data, int(batch.tags[row]), batch.peer, to):
                return row
            self.counters["in_pieces"] += 1
        return len(batch.segments)

    def _send_cut(self, data: bytes, tag: int, peer: int, to: tuple[str, int]) -> bool:
        """Send a datagram in pieces that pass; False where the send buffer is full."""
        self._pieces = (self._pieces + 1) & 0xFFFFFFFF
        for piece in cut(self._whole(peer, data), self._pieces, self._limits[peer]):
            error = self._send_one(self.sealed(peer, piece), tag, to)
            if error == errno.EAGAIN:
                return False
            if error:
                kernel_errors.count(self.counters, "send", error)
        return True

    def _hand_over(self, batch: Transmit, *, gso: bool) -> tuple[int, int]:
        """Datagrams that the kernel took, or that are lost for good; and the error at which it
        stopped, if another way of sending may work: EMSGSIZE, EIO, EINVAL, or 0."""
        sender, (name, _) = self._sender, self._peers[batch.peer]
        may_go_otherwise = _WITH_GSO if gso else _WITHOUT
        count, done, refused, why = len(batch.segments), 0, 0, 0
        checksum = self._checksums.get(batch.peer)
        sender.begin(batch, name, self._fd, gso=gso, checksum=checksum)
        while done < count:
            try:
                done = sender.push()
            except OSError as exc:
                before, done = done, sender.gone
                refused = refused + 1 if done == before else 1
                if exc.errno == errno.EAGAIN:
                    break
                if kernel_errors.is_pending(exc.errno) and refused < TRIES:
                    self._clear_pending()  # of an earlier datagram
                    continue
                if exc.errno in may_go_otherwise:
                    why = exc.errno
                    break
                kernel_errors.count(self.counters, "send", exc)
                done = sender.skip()  # this message is lost, as on any other network: ENOBUFS, too,
                # means that a queue of this host dropped it, and not that it should be repeated
            finally:
                self.effort["send_calls"] += sender.calls
        sender.end()
        self.effort["data_out"] += done
        return done, why

    def send_control(self, control: Control) -> None:
        """Send one control datagram; a full send buffer loses it, its timer repeats it."""
        peer = self._peers.get(control.peer)
        if peer is None:
            return
        is_probe, data = control.data[1] == Kind.PROBE, control.data
        limit = max(self._limits.get(control.peer, MAX_UDP), LEAST_PIECE)
        if len(data) > limit and not is_probe:
            self._send_cut(data, control.tag, control.peer, peer[1])
        elif error := self._send_one(self.sealed(control.peer, data), control.tag, peer[1]):
            kernel_errors.count(self.counters, "send", error)
            if error == errno.EMSGSIZE:
                self.too_big.append((control.peer, len(data)))

    def _send_one(self, data: bytes, tag: int, to: tuple[str, int]) -> int:
        """Send one datagram; returns the error number if the kernel does not take it, or 0."""
        attempt, tos = 0, self._tos[tag]
        while True:
            attempt += 1
            self.effort["control_calls"] += 1
            try:
                self.socket.sendmsg([data], tos, mmsg.MSG_DONTWAIT, to)
            except OSError as exc:
                if kernel_errors.is_pending(exc.errno) and attempt < TRIES:
                    self._clear_pending()  # of an earlier datagram, and not about this one
                    continue
                return exc.errno or errno.EIO
            return 0

    def _clear_pending(self) -> None:
        """Call it just before a call is repeated. The call that failed has cleared an error too,
        but messages of a flood come faster than calls."""
        with suppress(OSError):
            self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
