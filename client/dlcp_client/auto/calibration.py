"""Times dlcpd and the framework's backend in a model's own training steps, at intervals."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, cast

import torch
import torch.distributed as dist
from torch.futures import Future

from dlcp_client.auto.choice import Transports, TransportTimes, Way, decide, pause, settle
from dlcp_client.auto.turns import TURN, counts, there_and_back, typical

TURNS: Final[tuple[Way, ...]] = there_and_back(("backend", "dlcp"))
STEPS: Final = len(TURNS) * TURN
WHOLE: Final = -1  # "size" under which the times of whole steps are recorded

Agree = Callable[[Sequence[float]], Sequence[float]]

_log: Final = logging.getLogger("dlcp_client")


class Calibration:
    """The schedule of measurements, and the choices that follow from them.

    At first, all buckets use the backend. From step `first` on, whole training steps use backend
    and dlcpd as in TURNS. In the next step each rank gives its times (`typical`), `agree` returns
    those of the slowest rank, and `decide` chooses by them alone, so that all ranks choose alike
    and in the same step. If sizes are to use different transports, one more turn of steps measures
    that combination, and `settle` confirms or reverts it. The choices then hold until the next
    calibration.

    The next one begins `pause` steps later: enough that the steps of the slower transport cost at
    most 1 % of the time, and at least 100; the first calibration is not included. The pause follows
    from agreed times and counts steps, so it is the same on all ranks.

    `agree(values)`: the largest of each over the ranks; all call it with as many values, in the
    same step. `clock`: seconds. `begin` and `timed` are called in the backward pass.
    """

    def __init__(
        self, agree: Agree, *, first: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transports = Transports()
        self.next = first  # step in which the next calibration begins
        self.leaving: frozenset[int] = frozenset()  # sizes that used dlcpd until this step
        self._agree, self._clock = agree, clock
        self._measured: Way | None = None  # the transport of all buckets in this step
        self._counted = False
        self._began = 0.0
        self._seen: list[tuple[Way | None, int, float]] = []  # threads append: way, size, seconds

    def begin(self, step: int) -> None:
        """A backward pass begins, on all ranks. Raises: the error that ended an agreement."""
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
        at = step - self.next  # below 0 after the end of the calibration
        self._measured = TURNS[at // TURN] if 0 <= at < STEPS else None
        self._counted = at >= 0 and counts(at)

    def is_between(self, step: int) -> bool:
        """Whether `step`, which is about to begin, is part of no calibration, or of its decision.
        Equal on all ranks."""
        return step < self.next

    def way(self, size: int) -> Way:
        """The transport of a bucket of `size` bytes in this step."""
        return self._measured or self.transports.of(size)

    def timed(
        self, size: int, start: Callable[[], "Future[torch.Tensor]"]
    ) -> "Future[torch.Tensor]":
        """The result of `start`, whose time is recorded if this step counts."""
        way = self._measured
        if way is None or not self._counted:
            return start()
        began = self._clock()

        def end(ended: "Future[torch.Tensor]") -> torch.Tensor:
            tensor = ended.value()  # raises the error that ended it
            self.note(way, size, self._clock() - began)
            return tensor

        return cast("Future[torch.Tensor]", start().then(end))

    def note(self, way: Way | None, size: int, seconds: float) -> None:
        """Record the time of a bucket, or of a whole step. `way` None: by both. Thread-safe."""
        self._seen.append((way, size, seconds))

    def _decide(self, step: int) -> None:
        seen = {(way, size) for way, size, _ in self._seen}
        sizes = sorted(size for way, size in seen if way == "dlcp" and ("backend", size) in seen)
        own = [self._typical(way, size) for size in sizes for way in ("dlcp", "backend")]
        agreed = list(self._agree(own))
        times = dict(zip(sizes, map(TransportTimes, agreed[::2], agreed[1::2]), strict=True))
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
        _log.info(
            'transport="auto": gradients %s; the next measurement begins in step %d',
            self.transports,
            self.next,
        )

    def _through_dlcpd(self) -> frozenset[int]:
        return frozenset(one.size for one in self.transports.sizes if one.chosen == "dlcp")

    def _typical(self, way: Way | None, size: int) -> float:
        return typical([s for by, of, s in self._seen if (by, of) == (way, size)])


def slowest(group: dist.ProcessGroup) -> Agree:
    """An agreement on the largest of each value, over the ranks of a process group."""

    def agree(values: Sequence[float]) -> list[float]:
        vector = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(vector, dist.ReduceOp.MAX, group=group)
        return cast("list[float]", vector.tolist())

    return agree
