"""What the operations of a session cost, added up."""

from dataclasses import dataclass

from dlcpd.contract.messages import Completed


@dataclass(frozen=True, slots=True)
class Ledger:
    """Totals over completed operations. Counts are segments, as in `Completed`."""

    operations: int = 0
    sent: int = 0  # of this rank's own contributions
    repaired: int = 0  # sent again
    given_up: int = 0  # of its own contributions that owners went without
    returned: int = 0  # given-up segments that were added to a later operation
    lost: int = 0  # that this rank, as an owner, went without
    energy: float = 0.0  # by operation, the fraction of its sum of squares given up; added up

    def plus(self, done: Completed) -> "Ledger":
        """The totals with one operation more."""
        return Ledger(
            self.operations + 1,
            self.sent + done.sent,
            self.repaired + done.repaired,
            self.given_up + done.given_up,
            self.returned + done.returned,
            self.lost + done.lost,
            self.energy + done.energy,
        )

    def minus(self, earlier: "Ledger") -> "Ledger":
        """What came after `earlier`."""
        return Ledger(
            self.operations - earlier.operations,
            self.sent - earlier.sent,
            self.repaired - earlier.repaired,
            self.given_up - earlier.given_up,
            self.returned - earlier.returned,
            self.lost - earlier.lost,
            self.energy - earlier.energy,
        )
