"""The error of bounded results: sums that ranks add up, and the measures computed from them. Pure.

The estimator: in a step each rank contributes x = g + e, its gradient and its residual. The exact
result is s = avg(x), the bounded one b = avg(x - l), where l is waived in this step; both are of
the same x. The error s - b = avg(l) is reapplied in the next step. So with error feedback it is
also the whole error of the sum over the steps so far: that does not grow with them. Against avg(g)
alone, the error of b is avg(e) - avg(l); it has no mean either where losses are alike from step to
step. Sums are in float64; b and s have the rounding of their dtype, and are equal bit for bit if
nothing was waived.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch

COLUMNS: Final = 5  # of a row of sums


def sums(bounded: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """For one part of a gradient: ||s - b||^2, ||s||^2, ||b||^2, <s, b>, and 1 if any number is not
    finite, or too large for squares in float64 (the others are then 0). Ranks add the rows of their
    parts up."""
    b, s = bounded.detach().flatten().double(), exact.detach().flatten().double()
    apart = s - b
    found = [apart.dot(apart), s.dot(s), b.dot(b), s.dot(b), torch.zeros((), dtype=torch.float64)]
    row = torch.stack(found)
    if not bool(torch.isfinite(row).all()):
        return torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    return row


@dataclass(frozen=True, slots=True)
class GradientError:
    """Measures of the error of a gradient."""

    relative: float  # ||s - b|| / ||s||
    cosine: float  # of the angle between s and b; 1: the same direction
    missing: float  # ||s - b||, which the next step reapplies
    exact: float  # ||s||
    overflow: bool  # a value is not finite: the other fields are unknown

    @classmethod
    def of(cls, row: torch.Tensor) -> "GradientError":
        """The error, from sums over all parts."""
        apart, exact, bounded, product, overflow = row.tolist()
        missing, norm = math.sqrt(apart), math.sqrt(exact)
        relative = missing / norm if norm else (math.inf if missing else 0.0)
        length = math.sqrt(exact) * math.sqrt(bounded)
        cosine = product / length if length else float(not missing)
        return cls(relative, cosine, missing, norm, overflow > 0)
