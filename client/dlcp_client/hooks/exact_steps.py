"""The steps that compare bounded mode with exact mode. Pure: the same on all ranks.

One step in EVERY runs in exact mode. It is compared with the bounded steps next to it, because
networks and batches change over a training. Only a guard and `transport="auto"` have such steps.
"""

from typing import Final

EVERY: Final = 50  # steps; an exact step costs the time that bounded mode saves: 2 % of it
BESIDE: Final = 2  # bounded steps timed before an exact one, and after it


def is_exact(step: int) -> bool:
    """Whether a step runs in exact mode. `step`: number of earlier steps after the warm-up."""
    return step % EVERY == EVERY // 2


def is_timed(step: int) -> bool:
    """Whether to time the exchanges of a step: of an exact one, or of one beside it."""
    return abs(step % EVERY - EVERY // 2) <= BESIDE
