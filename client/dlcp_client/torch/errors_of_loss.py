"""How far bounded results are from exact ones: sums that ranks add up, and what they say. Pure.

The estimator: in a step each rank contributes x = g + e, its gradient and what it had waived
before. Exact is s = avg(x), bounded is b = avg(x - l), l being what is waived now; both are
of the same x. The error s - b = avg(l) is what comes back in the next step, so with error
feedback it is also all by which the sum over the steps so far is off: it does not grow
with them. Against avg(g) alone, b is off by avg(e) - avg(l), which has no mean either where
losses are alike from step to step. Sums are in float64; b and s have the rounding of their
dtype, and are equal bit for bit where nothing was waived.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch

COLUMNS: Final = 5  # of a row of sums


def sums(bounded: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Of one part of a gradient: ||s - b||^2, ||s||^2, ||b||^2, <s, b>, and whether any number is
    not finite, or too large for squares in float64 (the others are 0 then). Ranks add up those of
    their parts."""
    b, s = bounded.detach().flatten().double(), exact.detach().flatten().double()
    apart = s - b
    found = [apart.dot(apart), s.dot(s), b.dot(b), s.dot(b), torch.zeros((), dtype=torch.float64)]
    row = torch.stack(found)
    if not bool(torch.isfinite(row).all()):
        return torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    return row


@dataclass(frozen=True, slots=True)
class Error:
    """What sums say of a gradient."""

    relative: float  # ||s - b|| / ||s||
    cosine: float  # of the angle between s and b; 1: the same direction
    missing: float  # ||s - b||, which the next step brings back
    exact: float  # ||s||
    overflow: bool  # not finite somewhere: nothing else is known

    @classmethod
    def of(cls, row: torch.Tensor) -> "Error":
        """From sums over all parts."""
        apart, exact, bounded, product, overflow = row.tolist()
        missing, norm = math.sqrt(apart), math.sqrt(exact)
        relative = missing / norm if norm else (math.inf if missing else 0.0)
        length = math.sqrt(exact) * math.sqrt(bounded)
        cosine = product / length if length else float(not missing)
        return cls(relative, cosine, missing, norm, overflow > 0)
