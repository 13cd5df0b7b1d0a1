"""Messages between control processes: one port receives, one line per peer sends."""

import asyncio
import ipaddress
import re
import resource
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from dlcpd.contract.errors import AddressUnavailable, BadMessage, TooMany
from dlcpd.contract.limits import MAX_ROUND_TRIP
from dlcpd.daemon import log
from dlcpd.daemon.peers.keys import KEY_CHARACTERS, key_bytes
from dlcpd.daemon.peers.line import Line, linger
from dlcpd.daemon.peers.listener import Listener
from dlcpd.daemon.peers.peer_messages import (
    MalformedPeerMessage,
    OtherVersion,
    PeerMessage,
    pack,
    unpack_peer_untrusted,
)
from dlcpd.daemon.peers.trust import Trust

MAX_LINES: Final = 8192  # 32 jobs of MAX_WORLD ranks, a line per peer daemon
LINES_SHARE: Final = 4  # ... and at most 1/4 of the descriptors
BACKLOG: Final = 512  # a whole job of MAX_WORLD ranks, and its neighbour, may connect at once
LINGER: Final = 1.0  # seconds, for a goodbye to leave
_ENDPOINT: Final = re.compile(r"tcp://(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Endpoint of a peer's control process, and the key that authenticates it."""

    endpoint: str
    key: str  # CURVE public key, Z85

    @classmethod
    def parse_untrusted(cls, endpoint: str, key: str) -> "PeerAddress":
        """Check the endpoint and the key that a client gives for a peer.

        Raises: BadMessage.
        """
        if not _is_endpoint(endpoint):
            raise BadMessage(f"endpoint {endpoint[:64]!r} is not tcp://ADDRESS:PORT")
        if not _is_key(key):
            raise BadMessage(f"a public key is {KEY_CHARACTERS} characters of Z85")
        return cls(endpoint, key)

    @property
    def target(self) -> tuple[str, int]:
        """Address and port."""
        host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
        return host.strip("[]"), int(port)


def is_loopback(endpoint: str) -> bool:
    """Whether the address is loopback: no other host reaches it."""
    return ipaddress.ip_address(PeerAddress(endpoint, "").target[0]).is_loopback


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
        key_bytes(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PeerCallbacks:
    """Callbacks for messages and events of peers."""

    message: Callable[[str, PeerMessage], None]  # the sender's key
    other_version: Callable[[str, int], None]  # the sender's key, and its version
    turned_away: Callable[[PeerAddress, str], None]  # a peer refused this host; its error code
    lost: Callable[[PeerAddress, str], None]  # the daemon may have ended; the sign, in words


@dataclass(slots=True)
class _Shared:
    """The line to one peer daemon, and how many sessions have a rank there."""

    line: Line
    users: int = 0


class Peers:
    """Sends to and receives from control processes whose keys are authorised."""

    def __init__(  # noqa: PLR0913  # all but the first three by keyword
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        port: int,
        *,
        trust: Trust,
        news: PeerCallbacks,
        counters: Counter[str],
        told: str = "",
    ) -> None:
        """Listen. `port` 0: any free one. `told`: the address that peers get instead, if given.

        Raises: AddressUnavailable.
        """
        self._loop, self._counters = loop, counters
        self._news, self.authorised = news, trust.authorised
        self._lines: dict[PeerAddress, _Shared] = {}
        self._leaving: set[Line] = set()  # lines that still send their last messages
        self._keys, self.public_key = trust.keys, trust.keys.text
        self._descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_lines = min(MAX_LINES, self._descriptors // LINES_SHARE)
        self._trust, self._told = trust, told
        self._listener, self.endpoint = self._listening(address, port)

    def _listening(self, address: str, port: int) -> tuple[Listener, str]:
        """A listener, and its endpoint. Raises: AddressUnavailable."""
        sock = _listen(address, port)
        listener = Listener(
            self._loop,
            sock,
            trust=self._trust,
            counters=self._counters,
            on_message=self._received,
            descriptors=self._descriptors,
        )
        return listener, _endpoint_of(sock, self._told)

    def listen_at(self, address: str, port: int) -> None:
        """No session is open: listen there, and no longer at the address of before.

        Raises: AddressUnavailable; then nothing has changed.
        """
        before = self._listener
        self._listener, self.endpoint = self._listening(address, port)
        before.close()

    def __len__(self) -> int:
        """Number of peer daemons that sessions talk to."""
        return len(self._lines)

    def admit_all(self, addresses: Iterable[PeerAddress]) -> None:
        """One more session talks to these peers.

        Raises: TooMany; then none is admitted.
        """
        done: list[PeerAddress] = []
        for address in addresses:
            if address not in self._lines and len(self._lines) >= self._max_lines:
                for admitted in done:
                    self.dismiss(admitted)
                raise TooMany(f"{self._max_lines} peer daemons are in use, the most allowed")
            self._admit(address)
            done.append(address)

    def dismiss(self, address: PeerAddress) -> None:
        """One session fewer talks to this peer; after the last, messages still leave, within
        LINGER."""
        self._listener.dismiss(address.key)
        shared = self._lines[address]
        shared.users -= 1
        if shared.users == 0:
            line = self._lines.pop(address).line
            self._leaving.add(line)
            line.close(LINGER, self._leaving.discard)

    def send(self, address: PeerAddress, message: PeerMessage) -> None:
        """Send, or drop and count: MAX_QUEUED messages wait already, or the peer's key is not
        authorised.
        """
        if not self.authorised.allows(address.key):
            self._counters["peer_revoked"] += 1
        elif not self._lines[address].line.send(pack(message)):
            self._counters["peer_queue_full"] += 1

    def round_trip(self, addresses: Iterable[PeerAddress]) -> int:
        """Microseconds, above 0: to the farthest of these peers and back, of what the kernel has
        seen of the connections that are open."""
        lines = [self._lines[address].line for address in addresses]
        return min(max([1, *(line.round_trip for line in lines)]), MAX_ROUND_TRIP)

    def revoke(self, keys: Collection[str]) -> None:
        """`keys` are no longer authorised: close the connections from and to their holders."""
        self._listener.revoke(keys)
        for address, shared in self._lines.items():
            if address.key in keys:
                shared.line.shut()

    def close(self) -> None:
        """Close everything; blocks for at most LINGER while the last messages leave."""
        for address in list(self._lines):
            self._lines[address].users = 1
            self.dismiss(address)
        linger(list(self._leaving), LINGER)
        for line in list(self._leaving):
            line.shut()
        self._listener.close()

    def _admit(self, address: PeerAddress) -> None:
        shared = self._lines.get(address)
        if shared is None:
            line = Line(
                self._loop,
                address.target,
                key_bytes(address.key),
                keys=self._keys,
                counters=self._counters,
                on_turned_away=partial(self._news.turned_away, address),
                on_lost=partial(self._news.lost, address),
            )
            shared = self._lines[address] = _Shared(line)
        shared.users += 1
        self._listener.admit(address.key)

    def _received(self, key: str, data: bytes) -> None:
        """Must not raise: the bytes are untrusted."""
        if not self._listener.admits(key):
            self._counters["peer_stranger"] += 1  # its session ended, its connection has not
            return
        try:
            message = unpack_peer_untrusted(data)
        except OtherVersion as exc:
            self._counters[f"peer_{exc.reason}"] += 1
            self._news.other_version(key, exc.version)
        except MalformedPeerMessage as exc:
            self._counters[f"peer_{exc.reason}"] += 1
            log.debug("peer_message_refused", key=key, code=exc.code, text=exc)
        else:
            self._news.message(key, message)


def _listen(address: str, port: int) -> socket.socket:
    """Raises: AddressUnavailable."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in address:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" is IPv4 as well
    try:
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise AddressUnavailable(
            f"[daemon] control_address {address} port {port}: {exc.strerror}; "
            f"give an address of this host and a free port"
        ) from exc
    return sock


def _endpoint_of(sock: socket.socket, told: str) -> str:
    bound, port, *_ = sock.getsockname()
    host = told or bound
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
