"""Buckets: parameters of one optimizer group in one tensor, and their gradients in another."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from dlcp_client.hooks.buckets import PlacedGradient
from dlcp_client.session import Session

LARGEST: Final = 16 << 20  # bytes of a bucket


class Division(NamedTuple):
    """Number of buckets of a model, if they are then not too small: each costs CPU time, and the
    fewer there are, the later the first begins and the longer the last is waited for."""

    buckets: int
    smallest: int  # bytes of a bucket


ON_ONE_HOST: Final = Division(4, 4 << 20)  # CPU time counts
# 4 hosts whose links are as busy as their cores, in virtual time: 4 buckets reach 0.61 of the
# bound, 8 reach 0.72 and 16 reach 0.76. Bounded loss is for buckets of 1 MiB and more.
ON_MORE: Final = Division(16, 1 << 20)
# Bytes: parameters, and the parts of ranks, begin at multiples of it. So a kernel meets a vector
# that is not full only at the end of a parameter, as without ranks, and rounds alike.
ALIGNMENT: Final = 64


class Slot(NamedTuple):
    """A parameter's elements [start, stop) of its bucket."""

    parameter: nn.Parameter
    start: int
    stop: int


class Slice(NamedTuple):
    """Elements [start, stop) of a bucket, all of one parameter."""

    start: int
    stop: int
    slot: int  # number of the parameter in the bucket


@dataclass(slots=True, eq=False)
class FlatBucket:
    """Tensors of the arena; from `enter` to `leave`, the parameters are views of `weights`."""

    group: int  # number of the optimizer's group
    slots: tuple[Slot, ...]
    weights: torch.Tensor
    gradients: torch.Tensor  # of this rank; in an operation, the averages of this rank's part
    missing: int  # gradients that this step has not brought
    # dtype to which weights are rounded before they travel; their owner keeps them as they were
    rounded: torch.dtype | None = None
    placed: tuple[PlacedGradient, ...] = field(init=False)

    def __post_init__(self) -> None:
        unit = self.unit
        self.placed = tuple(
            PlacedGradient(
                parameter,
                self.gradients[start:stop].view(parameter.shape),
                start * unit,
                stop * unit,
            )
            for parameter, start, stop in self.slots
        )

    @property
    def unit(self) -> int:
        """Bytes of an element."""
        return self.weights.itemsize

    def slices(self, start: int, stop: int) -> Iterator[Slice]:
        """Elements [start, stop) by parameter, without padding."""
        for number, slot in enumerate(self.slots):
            low, high = max(start, slot.start), min(stop, slot.stop)
            if low < high:
                yield Slice(low, high, number)

    def enter(self) -> None:
        """Move the parameters to the arena."""
        for parameter, start, stop in self.slots:
            view = self.weights[start:stop].view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view

    def leave(self) -> None:
        """Give every parameter memory of its own."""
        for slot in self.slots:
            slot.parameter.data = slot.parameter.detach().clone()


def flat_buckets(
    session: Session,
    groups: Sequence[dict[str, Any]],
    parameters: Sequence[nn.Parameter],
    rounded: torch.dtype | None = None,
) -> list[FlatBucket]:
    """Buckets of `parameters`, the last one first, as backward passes bring their gradients.

    A bucket has parameters of one group and dtype. Buckets are in the order in which their last
    gradients come. `rounded`: as of FlatBucket. Raises: ArenaFull.
    """
    division = ON_ONE_HOST if session.hosts == 1 else ON_MORE
    wanted = sum(p.nbytes for p in parameters) // division.buckets
    full_at = min(max(wanted, division.smallest), LARGEST)
    group_of = {id(p): number for number, group in enumerate(groups) for p in group["params"]}
    backward = list(reversed(parameters))
    open_ = dict[tuple[int, torch.dtype], list[nn.Parameter]]()
    size = Counter[tuple[int, torch.dtype]]()
    full = list[tuple[int, list[nn.Parameter]]]()
    for parameter in backward:
        key = group_of[id(parameter)], parameter.dtype
        open_.setdefault(key, []).append(parameter)
        size[key] += _padded_bytes(parameter)
        if size[key] >= full_at:
            full.append((key[0], open_.pop(key)))
            size[key] = 0
    full += [(group, run) for (group, _), run in open_.items()]
    turn = {id(parameter): at for at, parameter in enumerate(backward)}
    full.sort(key=lambda one: turn[id(one[1][-1])])
    return [_bucket(session, group, run, rounded) for group, run in full]


def _bucket(
    session: Session, group: int, run: Sequence[nn.Parameter], rounded: torch.dtype | None
) -> FlatBucket:
    slots, at = list[Slot](), 0
    for parameter in run:
        slots.append(Slot(parameter, at, at + parameter.numel()))
        at += _padded_bytes(parameter) // parameter.itemsize
    weights, gradients = (session.zeros(at, run[0].dtype) for _ in range(2))
    return FlatBucket(group, tuple(slots), weights, gradients, len(slots), rounded)


def _padded_bytes(parameter: nn.Parameter) -> int:
    return -(-parameter.nbytes // ALIGNMENT) * ALIGNMENT
