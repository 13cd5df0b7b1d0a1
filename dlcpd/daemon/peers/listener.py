"""The port that peers connect to: who may finish its handshake, and what it says then.

Only keys that are authorised, and that a Join of this host has named, are let in. A peer that is
early - no Join names its key yet - waits inside its handshake, and is let in the moment one does.
One whose key is not authorised is told so, and hung up on.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from dlcpd.contract.errors import NotAuthorised
from dlcpd.daemon import log
from dlcpd.daemon.crowd import Crowd
from dlcpd.daemon.peers.incoming import Incoming, Port
from dlcpd.daemon.peers.trust import Trust
from dlcpd.ipc.accepting import AcceptLoop, Short

MAX_STRANGERS: Final = 1024  # connections of no admitted key: 4 jobs of MAX_WORLD ranks, early
STRANGERS_SHARE: Final = 8  # ... and no more than this part of the descriptors
LEAST_STRANGERS: Final = 16
MAX_PER_KEY: Final = 4  # a daemon has one, by each address it knows of us; the oldest makes room
QUIET: Final = 10.0  # seconds between two lines of the log about keys that are not authorised


class Listener:
    """Owns `sock`. `on_message` gets the key that sent it and the message, and does not raise."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        trust: Trust,
        counters: Counter[str],
        on_message: Callable[[str, bytes], None],
        descriptors: int,  # that this process may have
    ) -> None:
        self._loop, self._sock, self._counters = loop, sock, counters
        self._authorised, self._quiet_until = trust.authorised, 0.0
        self._port = Port(trust.keys, counters, on_message, self._prove, self._ended)
        self._admitted: Counter[str] = Counter()  # key -> sessions that name it
        self._proved: dict[str, dict[Incoming, None]] = {}  # by key, in the order they came
        share = max(descriptors // STRANGERS_SHARE, LEAST_STRANGERS)
        self._strangers: Crowd[Incoming] = Crowd(min(MAX_STRANGERS, share))
        self._accepting = AcceptLoop(
            loop, sock, self._accepted, make_room=self._stranger_leaves, told=_tell_short
        )

    def admits(self, key: str) -> bool:
        """Whether a session names `key` now."""
        return key in self._admitted

    def admit(self, key: str) -> None:
        """One more session names `key`: let in whoever waits with it."""
        self._admitted[key] += 1
        for incoming in list(self._proved.get(key, ())):
            self._let_in(incoming)

    def dismiss(self, key: str) -> None:
        """One session less names `key`. Its connections may stay, as those of strangers."""
        self._admitted[key] -= 1
        if self._admitted[key] <= 0:
            del self._admitted[key]
            for incoming in list(self._proved.get(key, ())):
                self._add_stranger(incoming)

    def revoke(self, keys: Iterable[str]) -> None:
        """These are not authorised any more: hang up on who holds them."""
        for key in keys:
            for incoming in list(self._proved.get(key, ())):
                incoming.end("peer_revoked")

    def close(self) -> None:
        """Listen to nobody any more."""
        self._accepting.close()
        self._sock.close()
        while oldest := self._strangers.oldest():
            oldest.end()
        for incoming in [one for same in self._proved.values() for one in same]:
            incoming.end()

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Raises: OSError, where the peer has gone; `sock` is the caller's then."""
        self._add_stranger(Incoming(self._loop, sock, address[0], self._port))

    def _stranger_leaves(self) -> bool:
        """Whether one that no session names has made room."""
        oldest = self._strangers.oldest()
        if oldest:
            oldest.end("handshake_refused")
        return oldest is not None

    def _add_stranger(self, incoming: Incoming) -> None:
        leaves = self._strangers.add(incoming.source, incoming)
        if leaves is not None:
            leaves.end("handshake_refused")

    def _prove(self, incoming: Incoming) -> None:
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

    def _turn_away(self, incoming: Incoming) -> None:
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

    def _let_in(self, incoming: Incoming) -> None:
        self._strangers.discard(incoming)
        incoming.let_in()

    def _ended(self, incoming: Incoming) -> None:
        self._strangers.discard(incoming)
        same = self._proved.get(incoming.key, {})
        same.pop(incoming, None)
        if not same:
            self._proved.pop(incoming.key, None)


def _tell_short(why: Short) -> None:
    log.error("peer_accept_failed", text=why)
