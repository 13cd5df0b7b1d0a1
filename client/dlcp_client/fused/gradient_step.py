"""The gradients of one step: averaged as they come, changed once they are averaged, then used."""

from collections.abc import Sequence
from typing import Final

import torch

from dlcp_client.fused.flat_bucket import FlatBucket
from dlcp_client.fused.ways import OneOperation, Way, pending, share
from dlcp_client.hooks.lazy_parameters import (
    AveragedPiece,
    attach,
    awaited,
    land_parameter,
    release,
)
from dlcp_client.hooks.rules import Rules
from dlcp_client.operations.computations import Compute
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, BadTensor, DlcpError

NAMED: Final = 3  # parameters that an error names at most


class GradientStep:
    """Operations of a training step, from the first gradient of a backward pass to the weights,
    which the next forward pass awaits layer by layer."""

    def __init__(self, session: Session, rules: Rules, buckets: Sequence[FlatBucket]) -> None:
        self._session, self._rules, self._buckets = session, rules, buckets
        self.way: Way = OneOperation(session)  # may change between two steps
        self._of = {
            id(slot.parameter): (b, number) for b in buckets for number, slot in enumerate(b.slots)
        }
        # by parameter: its gradient of this step, and the version of the values that were averaged
        self._given: dict[int, tuple[torch.Tensor, int]] = {}
        self._works: list[Work] = []  # of the first buckets, in their order

    @property
    def begun(self) -> bool:
        """Whether a gradient of this step was averaged."""
        return bool(self._given)

    def add(self, parameter: torch.Tensor) -> None:
        """A backward pass has completed the gradient of a parameter. Submits each bucket that is
        complete; the last gradient waits until all are. Raises: BadConfig, BadTensor; the error
        that ended the session."""
        key, gradient = id(parameter), parameter.grad
        if key in self._given:
            raise BadConfig(
                f"a second backward pass without step(): {self._name(parameter)!r} is averaged "
                f"already. Use no_sync() of the handle for all passes but the last, or its "
                f"discard() to skip a step; give the scaler= of the training, if it has one"
            )
        assert gradient is not None  # noqa: S101  # torch calls the hook after it has added to it
        if gradient.is_sparse:
            raise BadTensor(
                f"the gradient of {self._name(parameter)!r} is sparse: set sparse=False"
            )
        if not self._given:
            self._rules.begin_step(self._session.world)
        bucket, number = self._of[key]
        bucket.take(number, gradient)
        self._given[key] = gradient, gradient._version  # noqa: SLF001  # no public name
        bucket.missing -= 1
        # All ranks submit in the same order, also if a training submits more after backward().
        last = len(self._given) == len(self._of)
        while len(self._works) < len(self._buckets) and not self._next.missing:
            if not self._next.taken(wait=last):
                break
            self._submit(self._next)

    def submit_rest(self) -> None:
        """Submit the buckets that a backward pass has not completed here, with 0 for absent
        gradients, so that all ranks can drop the step. Raises: the error that ended the session."""
        if not self.begun:
            self._rules.begin_step(self._session.world)
        while len(self._works) < len(self._buckets):
            bucket = self._next
            bucket.taken(wait=True)
            for slot, placed in zip(bucket.slots, bucket.placed, strict=True):
                if id(slot.parameter) not in self._given:
                    placed.gradient.zero_()
            self._submit(bucket)

    def compute_due(self, computations: Sequence[Compute]) -> None:
        """Compute the parts whose sums are here, in one operation. Raises: as `Session.compute`."""
        self._session.compute(pending(self._works, computations), wait=False)

    def finish(self, computations: Sequence[Compute]) -> None:
        """Compute this rank's parts, by bucket; from now on, reading a parameter waits for its
        bucket. Raises: the error that ended an operation."""
        works, self._works = self._works, []
        self._given.clear()
        for bucket in self._buckets:
            bucket.missing = len(bucket.slots)
        with self._rules.account.waiting():
            self.way.update(self._buckets, works, computations, self._attach)

    def parts(self) -> list[list[tuple[int, int]]]:
        """Bytes [start, stop) of which this rank holds the averages, and has not used them, by
        bucket: waits for all. Raises: the error that ended an operation."""
        with self._rules.account.waiting():
            return self.way.parts(self._buckets, self._works)

    def averages(self) -> list[torch.Tensor]:
        """The averages of `parts`, by bucket and parameter. Raises: as `parts`."""
        return [
            bucket.gradients[one.start : one.stop]
            for bucket, found in zip(self._buckets, self.parts(), strict=True)
            for start, stop in found
            for one in bucket.slices(start // bucket.unit, stop // bucket.unit)
        ]

    def averages_once(self) -> list[torch.Tensor]:
        """As `averages`, but each element on one rank only, as for a norm. Raises: as `parts`."""
        if not self.way.everywhere:
            return self.averages()
        self.parts()
        group = self._session.world
        return [
            bucket.gradients[one.start : one.stop]
            for bucket in self._buckets
            for one in bucket.slices(*share(bucket, group.rank, group.size))
        ]

    def settle(self) -> None:
        """Wait for all weights. Raises: the error that ended an operation; parameters then have
        what has arrived, and are awaited no more."""
        failure: DlcpError | None = None
        for bucket in self._buckets:
            for slot in bucket.slots:
                try:
                    land_parameter(slot.parameter)
                except DlcpError as exc:
                    failure = failure or exc
                    if (entry := awaited(slot.parameter)) is not None:
                        release(entry)
        if failure is not None:
            raise failure

    def check_complete(self, call: str) -> None:
        """Raises: BadConfig if a gradient is missing."""
        absent = [slot.parameter for b in self._buckets for slot in b.slots]
        absent = [p for p in absent if id(p) not in self._given]
        if absent:
            names = ", ".join(repr(self._name(p)) for p in absent[:NAMED])
            raise BadConfig(
                f"{call} without a gradient of {names}: every parameter needs one from a backward "
                f"pass outside no_sync(); freeze parameters that are not used"
            )

    def check_unchanged(self) -> None:
        """Raises: BadConfig if a gradient has changed since it was averaged, since no update reads
        `.grad`; or if a parameter has left the arena, where it would miss its updates."""
        for bucket in self._buckets:
            for number, (parameter, _, _) in enumerate(bucket.slots):
                kept, version = self._given[id(parameter)]
                if parameter.grad is not kept or kept._version != version:  # noqa: SLF001  # as above
                    raise BadConfig(
                        f"the gradient of {self._name(parameter)!r} was changed after backward(), "
                        f"when it was averaged already: use clip_grad_norm_() of the handle, give "
                        f"scaler= to fused.register, or use ddp.register for other changes"
                    )
                if not bucket.in_place(number):
                    raise BadConfig(
                        f"parameter {self._name(parameter)!r} has other memory than since "
                        f"fused.register: convert, move or assign parameters before it"
                    )

    @property
    def _next(self) -> FlatBucket:
        return self._buckets[len(self._works)]

    def _name(self, parameter: torch.Tensor) -> str:
        return self._rules.name_of(parameter)

    def _attach(self, bucket: FlatBucket, work: Work[torch.Tensor]) -> None:
        piece = AveragedPiece(work, self._rules.account.waiting)
        for slot in bucket.slots:
            attach(piece, slot.parameter, None, bucket)

    def _submit(self, bucket: FlatBucket) -> None:
        for slot in bucket.slots:  # one that no forward pass has read since the last step
            land_parameter(slot.parameter)
        bucket.take_changes()
        request = self._rules.request(bucket.placed, 0, bucket.gradients.nbytes)
        work = self.way.reduce(bucket, request.keywords())
        request.time(work, watch=True)
        self._works.append(work)
