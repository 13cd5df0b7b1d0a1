"""The receiving half of a UDP socket: batches in, and GRO where it joins datagrams."""

import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from dlcpd.core.wire.datagram import Batch
from dlcpd.io.datapath.receiving import CompiledRing
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.receive_ring import ReceiveRing
from dlcpd.io.udp.sockets import offload
from dlcpd.ipc import kernel_errors

TRIES: Final = 64  # calls in a row that may fail for a pending ICMP error
USELESS_GRO: Final = 8  # full receive calls that joined no message: 64 datagrams, 256 with numpy
JOIN_AGAIN: Final = 5.0  # seconds until GRO is tried again: single datagrams may be a stranger's


class UdpReceiver:
    """Of one path. `make_ring` makes the ring of buffers, with GRO or without."""

    def __init__(
        self,
        sock: socket.socket,
        counters: Counter[str],
        effort: Counter[str],
        make_ring: Callable[[bool], ReceiveRing | CompiledRing],
        *,
        joins: bool,
    ) -> None:
        """`joins`: GRO is wanted."""
        self._socket, self._fd, self._make_ring = sock, sock.fileno(), make_ring
        self._counters, self._effort = counters, effort
        self.gro = joins and offload(sock, mmsg.UDP_GRO, 1)
        self._join_at = 0.0 if self.gro else math.inf  # when GRO may be tried again
        self._ring = make_ring(self.gro)
        self.drained = True  # whether the last receive left nothing behind
        self._faults = 0  # receive calls in a row that found no socket

    def receive(self) -> Sequence[Batch]:
        """The batches that wait, up to two megabytes; empty if none does.

        The batches point into this object's buffer: use them before the next call.
        """
        batches, self.drained = self._receive()
        if self.drained:  # else the waiting datagrams came under the former setting
            self._reconsider_joining()
        for batch in batches:
            if batch.lost:
                self._counters["injected_loss"] += batch.lost
            if batch.corrupted:
                self._counters["injected_corruption"] += batch.corrupted
        return batches

    @property
    def lost(self) -> bool:
        """The socket is gone."""
        return self._faults >= kernel_errors.TRIES

    def _receive(self) -> tuple[Sequence[Batch], bool]:
        """Raises: OSError with an errno of kernel_errors.OURS."""
        for _ in range(TRIES):
            try:
                received = self._ring.receive(self._fd)
            except OSError as exc:
                if exc.errno in kernel_errors.OURS:
                    self._faults += 1
                    raise
                # of a datagram that was sent here; reporting the error has cleared it
                kernel_errors.count(self._counters, "receive", exc)
                continue
            self._effort["receive_calls"] += self._ring.calls
            self._faults = 0
            return received
        return [], False  # waiting datagrams cause the next wake-up

    def _reconsider_joining(self) -> None:
        """If GRO joins nothing, turn it off for a while: each datagram is then a message of its
        own, and one call takes in as many as the raster has rows."""
        if self.gro and self._ring.full_calls >= USELESS_GRO:
            self._join(wanted=False)
            self._join_at = time.monotonic() + JOIN_AGAIN
            self._counters["gro_useless"] += 1
        elif not self.gro and time.monotonic() >= self._join_at:
            self._join(wanted=True)

    def _join(self, *, wanted: bool) -> None:
        try:
            self._socket.setsockopt(socket.IPPROTO_UDP, mmsg.UDP_GRO, int(wanted))
        except OSError as exc:  # GRO stays as it is
            kernel_errors.count(self._counters, "gro", exc)
            return
        self.gro = wanted
        self._ring = self._make_ring(self.gro)
