"""Options of PowerSGD, and checks of their combination with others."""

from dataclasses import dataclass
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import LossPolicy, checked

MAX_RANK: Final = 64  # above it, int8 takes fewer bytes for most layers, and less time


@dataclass(frozen=True, slots=True)
class PowerSGD:
    """Sends a gradient of n x m values as (n + m) x `rank` values; the error is added to the next
    gradient.

    Matrices that would not become `least_ratio` times smaller are sent unchanged; so are norms,
    biases and embeddings, and all steps of the warm-up.

    Raises: BadConfig naming the field.
    """

    rank: int = 4
    least_ratio: float = 2.0

    def __post_init__(self) -> None:
        if type(self.rank) is not int or not 1 <= self.rank <= MAX_RANK:
            raise BadConfig(
                f"PowerSGD rank={self.rank!r} is out of range: use a whole number, 1..{MAX_RANK}"
            )
        if not _is_at_least_one(self.least_ratio):
            raise BadConfig(
                f"PowerSGD least_ratio={self.least_ratio!r} is out of range: use a number, 1 "
                "or more"
            )

    def rank_of(self, rows: int, columns: int) -> int:
        """The rank for a matrix; 0: it is sent unchanged."""
        rank = min(self.rank, rows, columns)
        return rank if (rows + columns) * rank * self.least_ratio <= rows * columns else 0


def _is_at_least_one(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 1


def checked_low_rank(
    low_rank: Any, policy: LossPolicy, *, guard: Any = None, transport: str = "dlcp"
) -> PowerSGD | None:
    """`low_rank`, if it fits the other options.

    Raises: BadConfig, BadPolicy.
    """
    if low_rank is None:
        return None
    if not isinstance(low_rank, PowerSGD):
        raise BadConfig(
            f"low_rank {low_rank!r} is not a PowerSGD: use PowerSGD(rank=4) of dlcp_client"
        )
    if not checked(policy).is_plain:
        raise BadConfig(
            "low_rank needs lossless sums: residuals of one factor cannot be added to the "
            "next; use exact() without a codec, or leave low_rank out"
        )
    if guard is not None or transport != "dlcp":
        raise BadConfig('low_rank works without guard= and with transport="dlcp" only')
    return low_rank
