"""The group of one rank: every operation is a copy and completes at once."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import torch
from torch.futures import Future

from dlcpd.contract.errors import BadOperation
from dlcpd.contract.policy import EXACT, LossPolicy

from .transport import Flat, TransportWork


class CompletedWork:
    """The work of a completed operation."""

    source = 0

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def done(self) -> bool:
        return True

    def get_future(self) -> "Future[Any]":
        made: Future[Any] = Future()
        made.set_result(None)
        return made


class SingleRankGroup:
    """A transport.Group without peers. A reduction returns its single input."""

    rank, size = 0, 1

    def all_reduce(
        self, tensor: Flat, op: str, *, policy: LossPolicy, layers: Iterable[Any] = ()
    ) -> TransportWork:
        return CompletedWork()

    def reduce(self, tensor: Flat, root: int, op: str, *, policy: LossPolicy) -> TransportWork:
        return CompletedWork()

    def broadcast(self, tensor: Flat, root: int, *, policy: LossPolicy) -> TransportWork:
        return CompletedWork()

    def all_gather(
        self,
        output: Flat,
        input: Flat,
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        return _copied(output, input)

    def gather(
        self, output: Flat | None, input: Flat, root: int, *, policy: LossPolicy
    ) -> TransportWork:
        return _copied(output, input)

    def scatter(
        self, output: Flat, input: Flat | None, root: int, *, policy: LossPolicy
    ) -> TransportWork:
        return _copied(output, input)

    def reduce_scatter(  # noqa: PLR0913  # as the Protocol says
        self,
        output: Flat,
        input: Flat,
        op: str,
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        layers: Iterable[Any] = (),
    ) -> TransportWork:
        return _copied(output, input)

    def all_to_all(
        self,
        output: Flat,
        input: Flat,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        return _copied(output, input)

    def send(self, tensor: Flat, peer: int, tag: int, *, policy: LossPolicy) -> TransportWork:
        self._refuse()

    def receive(
        self, tensor: Flat, peer: int | None, tag: int, *, policy: LossPolicy
    ) -> TransportWork:
        self._refuse()

    def barrier(self, *, policy: LossPolicy) -> TransportWork:
        return CompletedWork()

    def close(self) -> None:
        """Nothing to end."""

    def _refuse(self) -> NoReturn:
        raise BadOperation("a group of one rank has no peer to send to or receive from")


def _copied(output: Flat | None, given: Flat | None) -> TransportWork:
    if output is not None and given is not None:
        targets = output if isinstance(output, tuple) else (output,)
        values = torch.cat(given) if isinstance(given, tuple) else given
        parts = torch.split(values, [target.numel() for target in targets])
        for target, part in zip(targets, parts, strict=True):
            target.copy_(part)
    return CompletedWork()
