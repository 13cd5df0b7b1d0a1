"""The port that peers connect to: admits connections by key, and receives their messages.

A connection is admitted if its key is authorised and a Join of this host names it. A peer whose key
no Join names yet waits inside its handshake until one does. A peer whose key is not authorised gets
an error, and the connection is closed.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from dlcpd.contract.errors import NotAuthorised
from dlcpd.daemon import log
from dlcpd.daemon.fair_table import FairTable
from dlcpd.daemon.peers.incoming import IncomingConnection, Port
from dlcpd.daemon.peers.trust import Trust
from dlcpd.ipc.accepting import AcceptLoop, Short

MAX_STRANGERS: Final = 1024  # connections without an admitted key: 4 early jobs of MAX_WORLD ranks
STRANGERS_SHARE: Final = 8  # ... and at most 1/8 of the descriptors
LEAST_STRANGERS: Final = 16
MAX_PER_KEY: Final = 4  # a daemon has one per address of this host; the oldest makes room
QUIET: Final = 10.0  # seconds between two warnings about keys that are not authorised


class Listener:
    """Owns `sock`. `on_message` gets the sender's key and the message, and must not raise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        trust: Trust,
        counters: Counter[str],
        on_message: Callable[[str, bytes], None],
        descriptors: int,  # limit of this process
    ) -> None:
        self._loop, self._sock, self._counters = loop, sock, counters
        self._authorised, self._quiet_until = trust.authorised, 0.0
        self._port = Port(trust.keys, counters, on_message, self._prove, self._ended)
        self._admitted: Counter[str] = Counter()  # key -> sessions that name it
        self._proved: dict[
            str, dict[IncomingConnection, None]
        ] = {}  # by key, in the order they came
        share = max(descriptors // STRANGERS_SHARE, LEAST_STRANGERS)
        self._strangers: FairTable[IncomingConnection] = FairTable(min(MAX_STRANGERS, share))
        self._accepting = AcceptLoop(
            loop, sock, self._accepted, make_room=self._stranger_leaves, told=_tell_short
        )

    def admits(self, key: str) -> bool:
        """Whether a session names `key` now."""
        return key in self._admitted

    def admit(self, key: str) -> None:
        """One more session names `key`: admit the connections that wait with it."""
        self._admitted[key] += 1
        for incoming in list(self._proved.get(key, ())):
            self._let_in(incoming)

    def dismiss(self, key: str) -> None:
        """One session fewer names `key`. After the last, its connections stay, but may be
        evicted."""
        self._admitted[key] -= 1
        if self._admitted[key] <= 0:
            del self._admitted[key]
            for incoming in list(self._proved.get(key, ())):
                self._add_stranger(incoming)

    def revoke(self, keys: Iterable[str]) -> None:
        """`keys` are no longer authorised: close the connections of their holders."""
        for key in keys:
            for incoming in list(self._proved.get(key, ())):
                incoming.end("peer_revoked")

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._accepting.close()
        self._sock.close()
        while oldest := self._strangers.oldest():
            oldest.end()
        for incoming in [one for same in self._proved.values() for one in same]:
            incoming.end()

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Raises: OSError if the peer has gone; then the caller still owns `sock`."""
        self._add_stranger(IncomingConnection(self._loop, sock, address[0], self._port))

    def _stranger_leaves(self) -> bool:
        """Close the oldest connection without an admitted key; False: there is none."""
        oldest = self._strangers.oldest()
        if oldest:
            oldest.end("handshake_refused")
        return oldest is not None

    def _add_stranger(self, incoming: IncomingConnection) -> None:
        leaves = self._strangers.add(incoming.source, incoming)
        if leaves is not None:
            leaves.end("handshake_refused")

    def _prove(self, incoming: IncomingConnection) -> None:
        if not self._authorised.allows(incoming.key):
            self._turn_away(incoming)
            return
        same = self._proved.setdefault(incoming.key, {})
        same[incoming] = None
        if len(same) > MAX_PER_KEY:
            next(iter(same)).end("handshake_refused")
        if self.admits(incoming.key):
            self._let_in(incoming)
        else:
            self._counters["handshake_waits"] += 1

    def _turn_away(self, incoming: IncomingConnection) -> None:
        code, now, tell = NotAuthorised.code, self._loop.time(), log.debug
        if now >= self._quiet_until:
            tell, self._quiet_until = log.warning, now + QUIET
        tell(
            "peer_not_authorised",
            code=code,
            key=incoming.key,
            address=incoming.address,
            text=f"no file of {self._authorised.folder} names this key: if it is a host's, "
            f"`dlcpctl keys authorise` its file of public keys here",
        )
        incoming.turn_away(code, "peer_not_authorised")

    def _let_in(self, incoming: IncomingConnection) -> None:
        self._strangers.discard(incoming)
        incoming.let_in()

    def _ended(self, incoming: IncomingConnection) -> None:
        self._strangers.discard(incoming)
        same = self._proved.get(incoming.key, {})
        same.pop(incoming, None)
        if not same:
            self._proved.pop(incoming.key, None)


def _tell_short(why: Short) -> None:
    log.error("peer_accept_failed", text=why)
