"""The rule that selects the ranks of a job's next epoch, without clock and store.

Every process that wants to take part bids. Members of the present epoch bid with their seat, which
is their rank in it, and the seats that they have lost; new processes have no seat. The list is
written when every seat has bid, or when the missing seats have used their grace and a quorum has
bid.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

NEW: Final = -1  # seat of a new process
# Seconds for a seat that other ranks have lost. Its process may be alive: if its daemon or a path
# to it failed, it notices the loss no earlier than they do.
LOST_GRACE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bid:
    """One process that wants to take part in the next epoch."""

    number: int  # number of the bid in order of arrival, from 1
    seat: int  # rank in the present epoch, or NEW
    lost: frozenset[int] = frozenset()  # seats
    nonce: str = field(default="", compare=False)  # unique to the bid


@dataclass(frozen=True, slots=True)
class NextMembersRule:
    """`size`: seats of the present epoch; `quorum`: number of seats that suffice for the next one;
    `grace`: seconds for a seat that no rank has lost."""

    size: int
    quorum: int
    grace: float

    def complete(self, bids: Collection[Bid], waited: float) -> bool:
        """Whether the member list can be written `waited` seconds after the first read."""
        came, missing = self._came(bids), self.missing(bids)
        if not missing:
            return True
        if len(came) < self.quorum:
            return False
        lost = {seat for bid in bids for seat in bid.lost}
        return waited >= (LOST_GRACE if missing <= lost else self.grace)

    def missing(self, bids: Iterable[Bid]) -> set[int]:
        """Seats that have not bid."""
        return set(range(self.size)) - self._came(bids)

    def _came(self, bids: Iterable[Bid]) -> set[int]:
        return {bid.seat for bid in bids if 0 <= bid.seat < self.size}


def majority(size: int) -> int:
    """The smallest part of `size` members that is larger than the rest."""
    return size // 2 + 1


def in_order(bids: Iterable[Bid]) -> list[Bid]:
    """Bids by rank in the next epoch: seats keep their order; new processes follow in bid order.

    So rank 0 is a previous member, if there is one, and holds the state of the job. Of several bids
    for one seat the last counts: its process timed out and tries again.
    """
    by_number = sorted(bids, key=lambda bid: bid.number)
    seated = {bid.seat: bid for bid in by_number if bid.seat != NEW}
    return [seated[seat] for seat in sorted(seated)] + [b for b in by_number if b.seat == NEW]


def gone(size: int, seats: Sequence[int]) -> list[int]:
    """Seats of `size` without a place in the next epoch."""
    return sorted(set(range(size)) - set(seats))
