"""Measures both ways of a model's gradients in its own training steps, now and then."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, cast

import torch
import torch.distributed as dist
from torch.futures import Future

from dlcp_client.torch.choice import Times, Transports, Way, decide, pause, settle

# A way is taken for some steps in a row: what the other left behind (acknowledgements on their way,
# rates to be found again) is over after the first ones, which are not counted. There and back, so
# that what drifts, such as sequences that get longer, meets both alike.
TURNS: Final[tuple[Way, ...]] = ("backend", "dlcp", "dlcp", "backend")
TURN: Final = 5  # steps
SKIPPED: Final = 2  # of them; six are counted each way
STEPS: Final = len(TURNS) * TURN
WHOLE: Final = -1  # "size" under which the times of whole steps are noted

Agree = Callable[[Sequence[float]], Sequence[float]]

_log: Final = logging.getLogger("dlcp_client")


class Calibration:
    """When which way is taken and measured, and what follows from it.

    All goes by the backend at first. From step `first` on, whole training steps take the backend
    and dlcpd by TURNS. In the step after that each rank offers what it saw (`typical`), `agree`
    makes it one (the slowest rank's), and `decide` chooses by that alone, so that all ranks choose
    alike and in the same step. Where sizes are to take different ways, which no step has done yet,
    one more turn is measured like that, and `settle` confirms it or takes it back. Then the sizes
    go where they were sent until the next calibration.

    The next one begins `pause` steps later: so many that the steps of the slower way cost at most
    1 % of the time, and 100 at least; the first calibration is not part of that. It follows from
    agreed times and counts steps, so it, too, is the same on all ranks.

    `agree(values)`: the largest of each over the ranks; all call it with as many, and in the same
    step. `clock`: seconds. `begin` and `timed` are called in the backward pass.
    """

    def __init__(
        self, agree: Agree, *, first: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transports = Transports()
        self.next = first  # step in which the next calibration begins
        self.leaving: frozenset[int] = frozenset()  # sizes that went through dlcpd until this step
        self._agree, self._clock = agree, clock
        self._measured: Way | None = None  # the way that all of this step takes
        self._counted = False
        self._began = 0.0
        self._seen: list[tuple[Way | None, int, float]] = []  # threads append: way, size, seconds

    def begin(self, step: int) -> None:
        """A backward pass begins, on all ranks. Raises: what ended an agreement."""
        now = self._clock()
        if self._counted:
            self.note(self._measured, WHOLE, now - self._began)
        self._began = now
        self.leaving = frozenset()
        at = step - self.next
        if at == STEPS:
            self._decide(step)
        elif at == STEPS + TURN:
            self._settle(step)
        at = step - self.next  # below 0 when the end was reached
        self._measured = TURNS[at // TURN] if 0 <= at < STEPS else None
        self._counted = at >= 0 and at % TURN >= SKIPPED

    def way(self, size: int) -> Way:
        """Which way a bucket of `size` bytes takes in this step."""
        return self._measured or self.transports.of(size)

    def timed(
        self, size: int, start: Callable[[], "Future[torch.Tensor]"]
    ) -> "Future[torch.Tensor]":
        """What `start` returns, noted with its time if this step counts."""
        way = self._measured
        if way is None or not self._counted:
            return start()
        began = self._clock()

        def end(ended: "Future[torch.Tensor]") -> torch.Tensor:
            tensor = ended.value()  # raises what ended it
            self.note(way, size, self._clock() - began)
            return tensor

        return cast("Future[torch.Tensor]", start().then(end))

    def note(self, way: Way | None, size: int, seconds: float) -> None:
        """A bucket, or a whole step, took so long. None: by both ways. Any thread calls it."""
        self._seen.append((way, size, seconds))

    def _decide(self, step: int) -> None:
        seen = {(way, size) for way, size, _ in self._seen}
        sizes = sorted(size for way, size in seen if way == "dlcp" and ("backend", size) in seen)
        own = [self._typical(way, size) for size in sizes for way in ("dlcp", "backend")]
        agreed = list(self._agree(own))
        times = dict(zip(sizes, map(Times, agreed[::2], agreed[1::2]), strict=True))
        whole = times.pop(WHOLE)
        self.transports = decide(step, whole, times, self.transports)
        self.leaving = frozenset(times) - self._through_dlcpd()
        if len(self.transports.ways) < 2:
            self._end(step)

    def _settle(self, step: int) -> None:
        [mixed] = self._agree([self._typical(None, WHOLE)])
        before = self._through_dlcpd()
        self.transports = settle(step, self.transports, mixed)
        self.leaving = before - self._through_dlcpd()
        self._end(step)

    def _end(self, step: int) -> None:
        self._seen = []
        self.next = step + pause(self.transports.whole, STEPS // 2)
        _log.info("gradients %s; measured again in step %d", self.transports, self.next)

    def _through_dlcpd(self) -> frozenset[int]:
        return frozenset(one.size for one in self.transports.sizes if one.chosen == "dlcp")

    def _typical(self, way: Way | None, size: int) -> float:
        return typical([s for by, of, s in self._seen if (by, of) == (way, size)])


def typical(seconds: Sequence[float]) -> float:
    """The mean without the longest, which may be a rank that saved or evaluated meanwhile.

    Not the median: TCP's stalls on a lossy network meet some steps and not others, a training pays
    for all of them, and they are what dlcpd is there to avoid.
    """
    kept = sorted(seconds)[: max(1, len(seconds) - 1)]
    return sum(kept) / len(kept)


def slowest(group: dist.ProcessGroup) -> Agree:
    """An agreement on the largest of each value, over the ranks of a process group."""

    def agree(values: Sequence[float]) -> list[float]:
        vector = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(vector, dist.ReduceOp.MAX, group=group)
        return cast("list[float]", vector.tolist())

    return agree
