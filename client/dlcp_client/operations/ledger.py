"""Totals of the segments and losses of a session's operations."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from dlcpd.contract.messages import Completed

# Names with separate totals: at most 4,096 rows of 256 characters, 2 MB. A model has one per
# bucket. Operations of further names count in the totals only.
MAX_NAMES: Final = 4096


class Ledger(Struct, frozen=True, gc=False):
    """Totals of completed operations. Counts are segments, as in `Completed`."""

    operations: int = 0
    sent: int = 0  # of this rank's contributions
    retransmitted: int = 0  # sent again
    waived: int = 0  # of this rank's contributions, missing at their owners
    reapplied: int = 0  # waived segments that were added to a later operation
    lost: int = 0  # missing at this rank, as an owner
    energy: float = 0.0  # sum over operations of the waived fraction of the sum of squares

    def plus(self, done: Completed) -> "Ledger":
        """The totals with one more operation."""
        return Ledger(
            self.operations + 1,
            self.sent + done.sent,
            self.retransmitted + done.retransmitted,
            self.waived + done.waived,
            self.reapplied + done.reapplied,
            self.lost + done.lost,
            self.energy + done.energy,
        )

    def minus(self, earlier: "Ledger") -> "Ledger":
        """The totals since `earlier`."""
        return Ledger(
            self.operations - earlier.operations,
            self.sent - earlier.sent,
            self.retransmitted - earlier.retransmitted,
            self.waived - earlier.waived,
            self.reapplied - earlier.reapplied,
            self.lost - earlier.lost,
            self.energy - earlier.energy,
        )


class Ledgers:
    """The totals of a session: of all operations, and of the bounded ones by name.

    `add` is not thread-safe. The totals may be read at any time.
    """

    def __init__(self) -> None:
        self.whole = Ledger()
        self._bounded: dict[str, Ledger] = {}

    def add(self, name: str, done: Completed) -> None:
        """Add a completed operation. `name`: of a bounded one; else ""."""
        self.whole = self.whole.plus(done)
        if name and (name in self._bounded or len(self._bounded) < MAX_NAMES):
            self._bounded[name] = self._bounded.get(name, Ledger()).plus(done)

    def bounded(self, names: Collection[str]) -> dict[str, Ledger]:
        """Totals of the bounded operations by name, for those of `names` that had any."""
        return {name: self._bounded[name] for name in names if name in self._bounded}
