"""`dlcpctl doctor --listen`: answers another host's probes, on the addresses and ports that a
daemon with this configuration would have."""

import errno
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dlcpd import __version__
from dlcpd.contract.errors import AddressUnavailable
from dlcpd.daemon.config.effective import agreed, engine_configs
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor import tos
from dlcpd.doctor.datagrams import TOKEN, ProbeAnswer, probe_untrusted
from dlcpd.doctor.greeting import End, Greeting
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.sockets import size_buffers
from dlcpd.ipc.accepting import REST, Short, accept

MAX_PEERS: Final = 64  # connected at once: one more replaces the oldest
POLL: Final = 0.2  # seconds between checks whether to stop
AT_ONCE: Final = 256  # datagrams of a socket per wake-up
BUFFER: Final = 4 << 20  # bytes; a thousand probes of 1,280 B, with the kernel's own part
MAX_SOURCES: Final = 1024  # sockets of one peer; it needs a few for each path
CONTROL: Final = -1  # instead of a path's number
LONGEST: Final = 1 << 16

Sender = tuple[str, int]


@dataclass(slots=True)
class ProberConnection:
    """One connection. The token is valid while it lasts."""

    sock: socket.socket
    token: bytes
    arrived: Counter[Sender] = field(default_factory=Counter)  # probes, by source


class ProbeListener:
    """`config` is resolved. Raises: AddressUnavailable."""

    def __init__(self, config: Config, port: int) -> None:
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._resting: dict[socket.socket, float] = {}  # listeners, and until when
        self._peers: dict[bytes, ProberConnection] = {}
        try:
            self._listen(port)
        except OSError as exc:
            self.close()
            raise AddressUnavailable(
                f"cannot listen on {config.daemon.control_address} port {port}: {exc.strerror}; "
                f"give [daemon] control_address an address of this host, or another --port"
            ) from exc

    def _listen(self, port: int) -> None:
        control = self._config.daemon
        door = self._tcp(control.control_address, port)
        self.address: Sender = door.getsockname()[:2]
        self._control = self._control_end(control.control_address, control.control_port)
        self._data = [
            self._data_end(number // self._config.network.entropy, address, udp)
            for engine in engine_configs(self._config)
            for number, (address, udp) in enumerate(engine.paths)
        ]

    def _control_end(self, address: str, port: int) -> End:
        if port:
            try:
                self._tcp(address, port)
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise
                return End(CONTROL, address, port, held=True)  # the daemon accepts TCP as well
            return End(CONTROL, address, port, held=False)
        return End(CONTROL, address, self._tcp(address, 0).getsockname()[1], held=False)

    def _tcp(self, address: str, port: int) -> socket.socket:
        sock = self._socket(address, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen()
        self._selector.register(sock, selectors.EVENT_READ, self._accept)
        return sock

    def _data_end(self, path: int, address: str, port: int) -> End:
        sock = self._socket(address, socket.SOCK_DGRAM)
        held = False
        try:
            sock.bind((address, port))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            held = True
            sock.bind((address, 0))
        size_buffers(sock, BUFFER)
        mmsg.never_fragment(sock)
        tos.receive(sock)
        self._selector.register(sock, selectors.EVENT_READ, self._answer)
        return End(path, address, sock.getsockname()[1], held)

    def _socket(self, address: str, kind: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        self._sockets.append(sock)
        return sock

    @property
    def ends(self) -> Iterator[End]:
        """All sockets that answer, control first."""
        yield self._control
        yield from self._data

    def serve(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Answer for `seconds`, or until `stop`, called every POLL seconds, returns True."""
        until = time.monotonic() + seconds
        while not stop() and (left := until - time.monotonic()) > 0:
            self._wake_listeners()
            for key, _ in self._selector.select(min(left, POLL)):
                key.data(key.fileobj)

    def _wake_listeners(self) -> None:
        now = time.monotonic()
        for door in [door for door, until in self._resting.items() if until <= now]:
            del self._resting[door]
            self._selector.register(door, selectors.EVENT_READ, self._accept)

    def _accept(self, door: socket.socket) -> None:
        try:
            connection = accept(door)
        except Short:  # probes are answered meanwhile
            self._selector.unregister(door)
            self._resting[door] = time.monotonic() + REST
            return
        if connection is None:
            return
        sock, _ = connection
        sock.setblocking(False)
        if len(self._peers) == MAX_PEERS:
            self._hang_up(next(iter(self._peers.values())))
        peer = ProberConnection(sock, os.urandom(TOKEN))
        self._peers[peer.token] = peer
        # A peer must not send: a readable socket means its end, or a foreign client.
        self._selector.register(sock, selectors.EVENT_READ, lambda _: self._hang_up(peer))
        greeting = Greeting(
            __version__,
            self._config.daemon.host,
            peer.token,
            agreed(self._config),
            self._control,
            tuple(self._data),
        )
        try:
            sock.send(greeting.pack())  # at most 32 KiB into an empty buffer
        except OSError:
            self._hang_up(peer)

    def _hang_up(self, peer: ProberConnection) -> None:
        if self._peers.pop(peer.token, None) is None:
            return  # already closed, to make room for another
        self._selector.unregister(peer.sock)
        peer.sock.close()

    def _answer(self, sock: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                data, ancillary, _, sender = sock.recvmsg(LONGEST, tos.ROOM)
            except BlockingIOError:
                return
            except OSError:  # ICMP about an earlier answer
                continue
            probe = probe_untrusted(data)
            peer = self._peers.get(probe.token) if probe else None
            if probe is None or peer is None or len(peer.arrived) > MAX_SOURCES:
                continue
            peer.arrived[sender] += 1
            answer = ProbeAnswer(
                probe.token,
                probe.serial,
                tos.received(ancillary),
                len(data),
                peer.arrived[sender],
                time.time_ns() // 1000,
            )
            tos.send(sock, answer.pack(probe.reply_size), probe.tos, sender)

    def close(self) -> None:
        """Close all sockets."""
        for peer in list(self._peers.values()):
            self._hang_up(peer)
        for sock in self._sockets:
            sock.close()
        self._selector.close()
