"""How ways of doing the same are compared in a job's own steps."""

from collections.abc import Sequence
from typing import Final, TypeVar

Way = TypeVar("Way")

# Each way is used for several steps in a row. The first ones are not counted, because effects of
# the other one last (acknowledgements in flight, rates to be found again).
TURN: Final = 5  # steps
SKIPPED: Final = 2  # steps of a turn; six are counted per way


def there_and_back(ways: Sequence[Way]) -> tuple[Way, ...]:
    """The way of each turn. The order is symmetric, so that drift, such as growing sequence
    lengths, affects all alike."""
    return (*ways, *reversed(ways))


def counts(step: int) -> bool:
    """Whether a step counts. `step`: number since the first turn began."""
    return step % TURN >= SKIPPED


def typical(seconds: Sequence[float]) -> float:
    """The mean without the longest, in which a rank may have saved or evaluated.

    Not the median: TCP stalls on a lossy network affect only some steps, but they cost the training
    time, and dlcpd is meant to avoid them.
    """
    kept = sorted(seconds)[: max(1, len(seconds) - 1)]
    return sum(kept) / len(kept)
