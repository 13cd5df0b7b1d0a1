"""The sessions of this host, by number and by name."""

import secrets
from collections.abc import Iterator

from dlcpd.daemon.peers.peer_messages import PeerMessage
from dlcpd.daemon.sessions.session import LocalSession


class SessionTable:
    """Finds sessions. A session whose client left keeps its number and loses its name, so that
    its rank can join again. Iteration is over a copy."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], LocalSession] = {}
        self._by_number: dict[int, LocalSession] = {}
        # Random start: unlike any earlier process's. Counting up: peers tell old from new.
        self._last_number = secrets.randbits(30) << 32

    def __iter__(self) -> Iterator[LocalSession]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, session: LocalSession) -> bool:
        return self._by_number.get(session.number) is session

    def next_number(self) -> int:
        """A number for a new session, larger than those of all earlier ones."""
        self._last_number += 1
        return self._last_number

    def add(self, session: LocalSession) -> None:
        """Find `session` by its number and its name from now on."""
        self._by_name[session.name] = self._by_number[session.number] = session

    def free_name(self, session: LocalSession) -> None:
        """Find `session` by its name no longer."""
        if self._by_name.get(session.name) is session:
            del self._by_name[session.name]

    def remove(self, session: LocalSession) -> None:
        """Find `session` no longer. It is in the table."""
        self.free_name(session)
        del self._by_number[session.number]

    def named(self, job: str, rank: int) -> LocalSession | None:
        """The session of a local rank."""
        return self._by_name.get((job, rank))

    def numbered(self, number: int) -> LocalSession | None:
        """The session with this number; None when it has just been closed."""
        return self._by_number.get(number)

    def addressed(self, message: PeerMessage) -> LocalSession | None:
        """The session that a peer's message is for, even if it is leaving."""
        meant = self._by_number.get(message.echo)
        if meant is not None and meant.name == (message.job, message.to_rank):
            return meant
        return self.named(message.job, message.to_rank)
