"""State that a session keeps between operations: residuals, and counts of losses."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dlcpd.collectives.holdings import Holdings
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.numerics.residual import ResidualStore

MAX_LEDGER: Final = 4096  # rows kept for reports
MAX_LEFT_OVER: Final = 4 << 20  # bytes of one part of a tensor: of the longest transfer


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Segments of one transfer that were waived (P9)."""

    operation: int  # number in its group
    name: str  # of the tensor
    sender: int  # rank
    owner: int  # rank at which they are missing
    transfer: int
    segments: int
    out_of: int  # segments of the transfer
    paths: dict[int, int]  # path -> segments; known to the sender only


@dataclass(slots=True)
class Accounts:
    """Accounts of one session."""

    holdings: Holdings = field(default_factory=Holdings)
    # reused memory for residuals of codecs, shared by the sessions of an engine
    spare: ScratchPool = field(default_factory=lambda: ScratchPool(MAX_LEFT_OVER))
    residuals: ResidualStore = field(init=False)
    ledger: list[LedgerRow] = field(default_factory=list)
    # segments, by owner and by path: at most 256 x 16 rows
    waived: Counter[tuple[int, int]] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)  # segments, by the rank that sent them

    def __post_init__(self) -> None:
        self.residuals = ResidualStore(self.holdings)

    def record(self, row: LedgerRow) -> None:
        """Add a loss."""
        self.ledger.append(row)
        if row.paths:  # known to the sender only
            for path, segments in row.paths.items():
                self.waived[row.owner, path] += segments
        else:
            self.lost[row.sender] += row.segments
        if len(self.ledger) > MAX_LEDGER:
            del self.ledger[: MAX_LEDGER // 2]
