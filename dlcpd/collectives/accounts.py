"""What a session keeps from one operation to the next: residuals, and the ledger of losses."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dlcpd.collectives.holdings import Holdings
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.numerics.residual import ResidualStore

MAX_LEDGER: Final = 4096  # rows kept for reports
MAX_LEFT_OVER: Final = 4 << 20  # bytes of one part of a tensor: the longest transfer's


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

    holdings: Holdings = field(default_factory=Holdings)
    # memory of residuals that codecs left over, from one operation to the next; of the engine
    spare: ScratchPool = field(default_factory=lambda: ScratchPool(MAX_LEFT_OVER))
    residuals: ResidualStore = field(init=False)
    ledger: list[LedgerRow] = field(default_factory=list)
    # segments, by the rank that went without them and by path: at most 256 x 16 rows
    waived: Counter[tuple[int, int]] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)  # segments, by the rank that sent them

    def __post_init__(self) -> None:
        self.residuals = ResidualStore(self.holdings)

    def record(self, row: LedgerRow) -> None:
        """Book a loss."""
        self.ledger.append(row)
        if row.paths:  # only who sent it knows them
            for path, segments in row.paths.items():
                self.waived[row.owner, path] += segments
        else:
            self.lost[row.sender] += row.segments
        if len(self.ledger) > MAX_LEDGER:
            del self.ledger[: MAX_LEDGER // 2]
