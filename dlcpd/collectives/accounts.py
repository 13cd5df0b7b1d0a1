"""What a session keeps from one operation to the next: residuals, and the ledger of losses."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.numerics.residual import ResidualStore

MAX_LEDGER: Final = 4096  # rows kept for reports


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Segments of one transfer that went missing for good (P9)."""

    operation: int  # number in its group
    name: str  # of the tensor
    sender: int  # rank
    owner: int  # rank that went without them
    transfer: int
    segments: int
    out_of: int  # segments of the transfer
    paths: dict[int, int]  # path -> segments; known to the sender only


@dataclass(slots=True)
class Accounts:
    """Of one session."""

    residuals: ResidualStore = field(default_factory=ResidualStore)
    ledger: list[LedgerRow] = field(default_factory=list)

    def record(self, row: LedgerRow) -> None:
        """Book a loss."""
        self.ledger.append(row)
        if len(self.ledger) > MAX_LEDGER:
            del self.ledger[: MAX_LEDGER // 2]
