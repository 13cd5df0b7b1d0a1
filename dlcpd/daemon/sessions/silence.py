"""The suspected peers of a session, and which changes of that are logged."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.session.events import PeerState

MOST_LINES: Final = 8  # log lines within QUIET: a cut network silences all peers of a session
QUIET: Final = 10.0  # seconds


@dataclass(slots=True)
class Silence:
    """Each engine suspects peers by itself; a peer is suspected as long as one engine does."""

    _engines: dict[int, set[int]] = field(default_factory=dict)  # by rank: those that suspect it
    _logged: set[int] = field(default_factory=set)  # ranks whose suspicion the log has
    _lines: int = 0
    _until: float = 0.0  # `_lines` counts up to then

    def change(self, engine: int, rank: int, state: PeerState, now: float) -> bool | None:
        """Apply an engine's report. None: nothing changed; else whether to log it."""
        engines = self._engines.setdefault(rank, set())
        before = bool(engines)
        if state is PeerState.SUSPECTED:
            engines.add(engine)
        else:
            engines.discard(engine)
        if not engines:
            del self._engines[rank]
        if bool(engines) == before:
            return None
        return self._may_log(rank, now) if engines else self._ends(rank)

    def clear(self) -> None:
        """Forget all: the session is over."""
        self._engines.clear()
        self._logged.clear()

    def _may_log(self, rank: int, now: float) -> bool:
        if now >= self._until:
            self._lines, self._until = 0, now + QUIET
        self._lines += 1
        if self._lines > MOST_LINES:
            return False
        self._logged.add(rank)
        return True

    def _ends(self, rank: int) -> bool:
        """The end of a suspicion is logged if its start was."""
        known = rank in self._logged
        self._logged.discard(rank)
        return known
