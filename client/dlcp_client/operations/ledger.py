"""What the operations of a session cost, added up."""

from dataclasses import dataclass

from dlcpd.contract.messages import Completed


@dataclass(frozen=True, slots=True)
class Ledger:
    """Totals over completed operations. Counts are segments, as in `Completed`."""

    operations: int = 0
    sent: int = 0  # of this rank's own contributions
    retransmitted: int = 0  # sent again
    waived: int = 0  # of its own contributions that owners went without
    reapplied: int = 0  # waived segments that were added to a later operation
    lost: int = 0  # that this rank, as an owner, went without
    energy: float = 0.0  # by operation, the fraction of its sum of squares waived; added up

    def plus(self, done: Completed) -> "Ledger":
        """The totals with one operation more."""
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
        """What came after `earlier`."""
        return Ledger(
            self.operations - earlier.operations,
            self.sent - earlier.sent,
            self.retransmitted - earlier.retransmitted,
            self.waived - earlier.waived,
            self.reapplied - earlier.reapplied,
            self.lost - earlier.lost,
            self.energy - earlier.energy,
        )
