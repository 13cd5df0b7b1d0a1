"""Peers that have left: when, and the operations that they submitted and still deliver."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from dlcpd.contract.errors import Peer, PeerLost
from dlcpd.core.session.stream import MAX_STREAMS
from dlcpd.core.session.stream_ids import MESSAGES


@dataclass(slots=True)
class Departure:
    """One peer. `begun`: by stream, the newest operation that it submitted."""

    at: float  # when it left
    why: str
    begun: dict[int, int] = field(default_factory=dict)
    over: bool = False  # its session has ended: it delivers nothing any more


@dataclass(slots=True)
class DepartedPeers:
    """The peers of one session that submit nothing more, by rank."""

    silent: set[int] = field(default_factory=set)  # ranks that answer nothing more: left, or lost
    _left: dict[int, Departure] = field(default_factory=dict)
    _told: dict[int, dict[int, int]] = field(default_factory=dict)  # incomplete ones, by rank

    def __contains__(self, rank: int) -> bool:
        return rank in self._left

    def __len__(self) -> int:
        return len(self._left)

    def add(
        self, rank: int, begun: Iterable[tuple[int, int]], why: str, now: float, *, last: bool
    ) -> None:
        """A peer has left after the operations that `begun` names, by stream; with `last`, all of
        them are known."""
        told = self._told.setdefault(rank, {})
        told.update(list(begun)[: MAX_STREAMS - len(told)])
        if last and rank not in self._left:
            self._left[rank] = Departure(now, why, self._told.pop(rank))

    def end(self, rank: int) -> None:
        """The peer's session is over."""
        self.silent.add(rank)
        if rank in self._left:
            self._left[rank].over = True

    def is_over(self, rank: int) -> bool:
        """Whether a peer has left and delivers nothing any more."""
        return rank in self._left and self._left[rank].over

    def among(self, ranks: Container[int]) -> list[int]:
        """Those of `ranks` that have left, in this order: later ones may have left because of the
        first."""
        return [rank for rank in self._left if rank in ranks]

    def promised(self, rank: int, wire: int, number: int) -> bool:
        """Whether a peer that has left had submitted an operation."""
        departure = self._left.get(rank)
        return departure is not None and number <= departure.begun.get(wire, 0)

    def promise_more(self, begun: dict[int, int]) -> bool:
        """Whether a peer has submitted a collective that has yet to begin here, after `begun`."""
        promises = [(w, n) for left in self._left.values() for w, n in left.begun.items()]
        return any(n > begun.get(wire, 0) for wire, n in promises if not wire & MESSAGES)

    def error(self, peer: Peer, now: float) -> PeerLost:
        """For an operation that needs more of a peer than it submitted before it left."""
        return self._error(peer, f"left {now - self._left[peer.rank].at:.1f} s ago")

    def over_error(self, peer: Peer) -> PeerLost:
        """For all later operations, once that peer has delivered all."""
        return self._error(peer, "left")

    def _error(self, peer: Peer, left: str) -> PeerLost:
        return PeerLost(
            f"rank {peer.rank} on {peer.host} {left}, after all that it had submitted was complete "
            f"there ({self._left[peer.rank].why}); this needs more of it",
            peer,
        )
