"""Totals of the segments and losses of a session's operations."""

from dataclasses import dataclass

from dlcpd.contract.messages import Completed


@dataclass(frozen=True, slots=True)
class Ledger:
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
