"""Three ways of a training step, from averages to weights on all ranks.

For the same schedule of the sums, all give the same weights, to the bit: contributions are added in
the same order, and an update computes each element by itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from dlcp_client.fused.flat_bucket import ALIGNMENT, FlatBucket
from dlcp_client.operations.computations import Compute
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.policy import EXACT

Works = Sequence[Work[torch.Tensor]]  # by bucket, in the order in which they began
Parts = list[list[tuple[int, int]]]  # by bucket: bytes [start, stop)
# Reading a parameter of a bucket waits for this operation from now on.
Attach = Callable[[FlatBucket, Work[torch.Tensor]], None]


class Way(Protocol):
    """How a step reduces, updates and gathers its buckets. Every rank uses the same one."""

    title: str
    everywhere: bool  # whether each rank updates, and so has the state of, all elements

    def reduce(self, bucket: FlatBucket, options: Mapping[str, Any]) -> Work[torch.Tensor]:
        """Begin to average the gradients of a bucket. `options`: of a reduction."""

    def parts(self, buckets: Sequence[FlatBucket], works: Works) -> Parts:
        """What this rank updates: waits for its averages. Raises: the error that ended an
        operation."""

    def update(
        self,
        buckets: Sequence[FlatBucket],
        works: Works,
        computations: Sequence[Compute],
        attach: Attach,
    ) -> None:
        """Update the parts of this rank, the front layers first: their gradients come last, and
        their weights are needed first. Raises: as `parts`; what a computation raises."""


class OneOperation:
    """The engine lets this rank compute its part of each chunk between reduction and gather."""

    title = "one operation"
    everywhere = False

    def __init__(self, session: Session, schedule: str = "") -> None:
        """`schedule`: by name, as of `Session.all_reduce`; empty: the daemon chooses."""
        self._session, self._schedule = session, schedule

    def reduce(self, bucket: FlatBucket, options: Mapping[str, Any]) -> Work[torch.Tensor]:
        return self._session.world.all_reduce_computed(
            bucket.gradients, bucket.weights, "avg", schedule=self._schedule, **options
        )

    def parts(self, buckets: Sequence[FlatBucket], works: Works) -> Parts:
        return self._session.await_sums(works)

    def update(
        self,
        buckets: Sequence[FlatBucket],
        works: Works,
        computations: Sequence[Compute],
        attach: Attach,
    ) -> None:
        for bucket, work in zip(buckets, works, strict=True):
            attach(bucket, work)
        self._session.compute(pending(works, computations))
        for work in works:
            if work.settled:
                work.wait()


class _AfterReduction(ABC):
    """A way in which a rank updates its part of a bucket when the reduction has ended."""

    def parts(self, buckets: Sequence[FlatBucket], works: Works) -> Parts:
        for work in works:
            work.wait()
        return [[self._part(bucket)] for bucket in buckets]

    def update(
        self,
        buckets: Sequence[FlatBucket],
        works: Works,
        computations: Sequence[Compute],
        attach: Attach,
    ) -> None:
        for bucket, work, compute in reversed(list(zip(buckets, works, computations, strict=True))):
            work.wait()
            compute(*self._part(bucket))
            attach(bucket, self._shared(bucket, work))

    @abstractmethod
    def _part(self, bucket: FlatBucket) -> tuple[int, int]:
        """The bytes [start, stop) that this rank updates."""

    @abstractmethod
    def _shared(self, bucket: FlatBucket, work: Work[torch.Tensor]) -> Work[torch.Tensor]:
        """The operation after which this rank has all weights of a bucket; `work`: the reduction's,
        which has ended."""


class ThreeOperations(_AfterReduction):
    """A reduce-scatter, the update of this rank's part, and an all-gather of each bucket."""

    title = "reduce-scatter, update, all-gather"
    everywhere = False

    def __init__(self, session: Session) -> None:
        self._world = session.world
        self._policy = EXACT  # of the step

    def reduce(self, bucket: FlatBucket, options: Mapping[str, Any]) -> Work[torch.Tensor]:
        self._policy = options["policy"]
        (start, stop), sizes = self._mine(bucket), shares(bucket, self._world.size)
        mine = bucket.gradients[start:stop]
        return self._world.reduce_scatter(
            mine, bucket.gradients, "avg", sizes, schedule="direct", **options
        )

    def _part(self, bucket: FlatBucket) -> tuple[int, int]:
        start, stop = self._mine(bucket)
        return start * bucket.unit, stop * bucket.unit

    def _shared(self, bucket: FlatBucket, work: Work[torch.Tensor]) -> Work[torch.Tensor]:
        del work
        (start, stop), sizes = self._mine(bucket), shares(bucket, self._world.size)
        mine = bucket.weights[start:stop]
        return self._world.all_gather(bucket.weights, mine, sizes, policy=self._policy)

    def _mine(self, bucket: FlatBucket) -> tuple[int, int]:
        return share(bucket, self._world.rank, self._world.size)


class UpdateEverywhere(_AfterReduction):
    """An all-reduce of each bucket; each rank updates all of it, and no weights travel."""

    title = "all-reduce, update of everything"
    everywhere = True

    def __init__(self, session: Session, schedule: str) -> None:
        """`schedule`: as of OneOperation."""
        self._world, self._schedule = session.world, schedule

    def reduce(self, bucket: FlatBucket, options: Mapping[str, Any]) -> Work[torch.Tensor]:
        return self._world.all_reduce(bucket.gradients, "avg", schedule=self._schedule, **options)

    def _part(self, bucket: FlatBucket) -> tuple[int, int]:
        return 0, bucket.weights.nbytes

    def _shared(self, bucket: FlatBucket, work: Work[torch.Tensor]) -> Work[torch.Tensor]:
        del bucket
        return work  # which has ended


def equal_ways(session: Session) -> list[Way]:
    """The ways whose weights are equal to the bit, by sums in the order that the daemon's own
    choice has for updates: within hosts first, if several have several ranks. A reduce-scatter has
    no such order."""
    if session.hosts in (1, session.world_size):
        found: list[Way] = [OneOperation(session, "direct"), ThreeOperations(session)]
        return [*found, UpdateEverywhere(session, "direct")]
    by_host = "hierarchical"
    return [OneOperation(session, by_host), UpdateEverywhere(session, by_host)]


def pending(works: Works, computations: Sequence[Compute]) -> dict[Work[torch.Tensor], Compute]:
    """How to compute each operation; the last one, of the front layers, first."""
    return dict(reversed(list(zip(works, computations, strict=False))))


def shares(bucket: FlatBucket, ranks: int) -> list[int]:
    """Elements of a bucket by rank: equal, but for the last ranks; parts begin at multiples of
    ALIGNMENT bytes, as those of engines do."""
    count, unit = len(bucket.weights), ALIGNMENT // bucket.unit
    each = -(-count // (ranks * unit)) * unit
    return [max(0, min(each, count - rank * each)) for rank in range(ranks)]


def share(bucket: FlatBucket, rank: int, ranks: int) -> tuple[int, int]:
    """The elements [start, stop) of one rank."""
    sizes = shares(bucket, ranks)
    start = sum(sizes[:rank])
    return start, start + sizes[rank]
