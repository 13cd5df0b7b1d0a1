"""ZeroMQ between controls: one ROUTER that only receives, one DEALER per peer that only sends."""

import asyncio
import ipaddress
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import zmq
from zmq.utils import z85

from dlcpd.contract.errors import AddressUnavailable, BadMessage, TooMany
from dlcpd.daemon import log
from dlcpd.daemon.peers.peer_messages import (
    MAX_PEER_FRAME,
    MalformedPeerMessage,
    OtherVersion,
    PeerMessage,
    pack,
    unpack_peer_untrusted,
)
from dlcpd.daemon.peers.pump import SocketPump
from dlcpd.daemon.peers.zap import Gatekeeper

MAX_SOCKETS: Final = 8192  # 32 jobs of MAX_WORLD ranks; one DEALER per peer daemon
BACKLOG: Final = 512  # a whole job of MAX_WORLD ranks, and its neighbour, may connect at once
MAX_QUEUED: Final = 64  # messages to one unreachable peer; a hello is repeated anyway
RECONNECT: Final = 50  # ms, doubled up to RECONNECT_MAX: a daemon that starts late is found soon
RECONNECT_MAX: Final = 500  # ms
CONNECT: Final = 2_000  # ms; a host that boots is found without TCP's doubling of SYN timers
HANDSHAKE: Final = 5_000  # ms; an early peer waits this long for a Join here, then connects again
HEARTBEAT: Final = 5_000  # ms; finds connections that a dead network left half open
LINGER: Final = 1_000  # ms; for a goodbye to leave
KEY_CHARACTERS: Final = 40
KEY_BYTES: Final = 32
_ENDPOINT: Final = re.compile(r"tcp://(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where a peer's control is, and the key that proves it."""

    endpoint: str
    key: str  # CURVE public key, Z85

    @classmethod
    def parse_untrusted(cls, endpoint: str, key: str) -> "PeerAddress":
        """Check what a client says about a peer: ZeroMQ would also open ipc:// and look up names.

        Raises: BadMessage.
        """
        if not _is_endpoint(endpoint):
            raise BadMessage(f"endpoint {endpoint[:64]!r} is not tcp://ADDRESS:PORT")
        if not _is_key(key):
            raise BadMessage("a public key is 40 characters of Z85")
        return cls(endpoint, key)


def _is_endpoint(text: str) -> bool:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        return False
    try:
        address = ipaddress.ip_address(match[1] or match[2])
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_multicast) and 1 <= int(match[3]) <= 65535


def _is_key(text: str) -> bool:
    try:
        return len(text) == KEY_CHARACTERS and len(z85.decode(text.encode("ascii"))) == KEY_BYTES
    except (ValueError, KeyError, struct.error):  # the last: five characters above 32 bits
        return False


@dataclass(slots=True)
class _Line:
    """The DEALER to one peer daemon, shared by all sessions that have a rank there."""

    sock: "zmq.Socket[bytes]"
    users: int = 0


class Peers:
    """Sends to and receives from peers' controls. A keypair lives as long as this object."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        port: int,
        *,
        on_message: Callable[[str, PeerMessage], None],
        on_other_version: Callable[[str, int], None],
        counters: Counter[str],
    ) -> None:
        """Bind the ROUTER. `port` 0 takes any.

        Raises: AddressUnavailable.
        """
        self._on_message, self._on_other_version = on_message, on_other_version
        self._counters = counters
        self._lines: dict[PeerAddress, _Line] = {}
        public, self._secret = zmq.curve_keypair()
        self.public_key = public.decode()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._gate = Gatekeeper(loop, self._context, counters)
        router = self._router(":" in address)
        self.endpoint = self._bind(router, address, port)
        self._pump = SocketPump(loop, router, self._received)

    def __len__(self) -> int:
        """Peer daemons that some session talks to."""
        return len(self._lines)

    def admit_all(self, addresses: Iterable[PeerAddress]) -> None:
        """One more session talks to these peers.

        Raises: TooMany; then none is admitted.
        """
        done: list[PeerAddress] = []
        for address in addresses:
            try:
                self._admit(address)
            except zmq.ZMQError as exc:
                for admitted in done:
                    self.dismiss(admitted)
                raise TooMany(f"no socket for one more peer: {exc.strerror}") from exc
            done.append(address)

    def dismiss(self, address: PeerAddress) -> None:
        """One session less; the last one's words still leave, within LINGER."""
        self._gate.dismiss(address.key)
        line = self._lines[address]
        line.users -= 1
        if line.users == 0:
            self._lines.pop(address).sock.close(LINGER)

    def send(self, address: PeerAddress, message: PeerMessage) -> None:
        """Send, or count it as dropped when the peer has not taken MAX_QUEUED messages."""
        try:
            self._lines[address].sock.send(pack(message), zmq.NOBLOCK)
        except zmq.Again:
            self._counters["peer_queue_full"] += 1

    def close(self) -> None:
        """Close everything; blocks for at most LINGER while the last messages leave."""
        for line in self._lines.values():
            line.sock.close(LINGER)
        self._lines.clear()
        self._pump.close()
        self._gate.close()
        self._context.term()

    def _admit(self, address: PeerAddress) -> None:
        """Raises: zmq.ZMQError; nothing changed."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line(self._dealer(address))
        line.users += 1
        self._gate.admit(address.key)

    def _received(self, frames: list[Any]) -> None:
        """Nothing here may raise: the bytes are a stranger's."""
        key = _user(frames)
        if len(frames) != 2 or not self._gate.admits(key):
            self._counters["peer_stranger"] += 1  # its session ended, its connection has not
            return
        try:
            message = unpack_peer_untrusted(frames[1].bytes)
        except OtherVersion as exc:
            self._counters[f"peer_{exc.reason}"] += 1
            self._on_other_version(key, exc.version)
        except MalformedPeerMessage as exc:
            self._counters[f"peer_{exc.reason}"] += 1
            log.debug("peer_message_refused", key=key, code=exc.code, text=exc)
        else:
            self._on_message(key, message)

    def _router(self, ipv6: bool) -> "zmq.Socket[bytes]":
        router = self._context.socket(zmq.ROUTER)
        router.set(zmq.CURVE_SERVER, 1)
        router.set(zmq.CURVE_SECRETKEY, self._secret)
        router.set(zmq.ZAP_DOMAIN, b"dlcpd")
        router.set(zmq.IPV6, int(ipv6))
        router.set(zmq.MAXMSGSIZE, MAX_PEER_FRAME)
        router.set(zmq.BACKLOG, BACKLOG)
        router.set(zmq.HANDSHAKE_IVL, HANDSHAKE)
        router.set(zmq.LINGER, 0)
        return router

    def _bind(self, router: "zmq.Socket[bytes]", address: str, port: int) -> str:
        host = f"[{address}]" if ":" in address else address
        try:
            router.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as exc:
            router.close()
            self._gate.close()
            self._context.term()
            raise AddressUnavailable(
                f"[daemon] control_address {address} port {port}: {exc.strerror}; "
                f"give an address of this host and a free port"
            ) from exc
        return router.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]

    def _dealer(self, address: PeerAddress) -> "zmq.Socket[bytes]":
        dealer = self._context.socket(zmq.DEALER)
        dealer.set(zmq.CURVE_SERVERKEY, address.key.encode())
        dealer.set(zmq.CURVE_PUBLICKEY, self.public_key.encode())
        dealer.set(zmq.CURVE_SECRETKEY, self._secret)
        dealer.set(zmq.IPV6, int("[" in address.endpoint))
        dealer.set(zmq.SNDHWM, MAX_QUEUED)
        dealer.set(zmq.RECONNECT_IVL, RECONNECT)
        dealer.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX)
        dealer.set(zmq.CONNECT_TIMEOUT, CONNECT)
        dealer.set(zmq.HANDSHAKE_IVL, HANDSHAKE)
        dealer.set(zmq.HEARTBEAT_IVL, HEARTBEAT)
        dealer.set(zmq.LINGER, LINGER)
        dealer.connect(address.endpoint)
        return dealer


def _user(frames: list[Any]) -> str:
    """The CURVE key under which a message came, which the gatekeeper set as its User-Id."""
    try:
        return str(frames[-1].get("User-Id"))
    except zmq.ZMQError:
        return ""
