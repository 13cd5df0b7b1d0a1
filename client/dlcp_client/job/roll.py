"""Who is in the next epoch of a job: the rule, without clock and store.

Every process that wants to be in it bids. Members of the present epoch bid with their seat, their
rank in it, and say whom they have lost; newcomers have no seat. The roll is called when every seat
has bid, or when those that are missing have had their time and those that came are enough.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

NEW: Final = -1  # seat of a newcomer
# Seconds for a seat that others have lost. Its process may live: its daemon died, or one of the
# paths to it; it learns of that as late as they do.
LOST_GRACE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bid:
    """One process that wants to be in the next epoch."""

    number: int  # of its bid, in the order in which they came, from 1
    seat: int  # rank in the present epoch, or NEW
    lost: frozenset[int] = frozenset()  # seats
    nonce: str = field(default="", compare=False)  # something that no other bid has


@dataclass(frozen=True, slots=True)
class Rule:
    """`size`: seats of the present epoch; `quorum`: how many of them suffice for the next one;
    `grace`: seconds for a seat that nobody has lost."""

    size: int
    quorum: int
    grace: float

    def complete(self, bids: Collection[Bid], waited: float) -> bool:
        """Whether the roll can be called `waited` seconds after the first look."""
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
    """The fewest of `size` members that no other part of them can outnumber or equal."""
    return size // 2 + 1


def in_order(bids: Iterable[Bid]) -> list[Bid]:
    """By rank in the next epoch: seats keep their order, and newcomers follow as they came.

    So rank 0 has always been a member before, if anybody has, and holds the state of the job. Of
    several bids for one seat the last counts: its process stopped waiting, and tries again.
    """
    by_number = sorted(bids, key=lambda bid: bid.number)
    seated = {bid.seat: bid for bid in by_number if bid.seat != NEW}
    return [seated[seat] for seat in sorted(seated)] + [b for b in by_number if b.seat == NEW]


def gone(size: int, seats: Sequence[int]) -> list[int]:
    """Seats of `size` that have no place in the next epoch."""
    return sorted(set(range(size)) - set(seats))
