"""Buckets: parameters of one optimizer group in one tensor, and their gradients in another."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

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
# Likewise, with updates within backward passes: 8 buckets reach 0.77, 16 reach 0.83, 32 0.86.
EAGER: Final = Division(32, 512 << 10)


def division_of(hosts: int, *, eager: bool = False, exact: bool = True) -> Division:
    """The division of a model that is trained on `hosts`. `eager`: updates run within backward
    passes, which helps where links are the limit. `exact`: no gradient may be lost."""
    if hosts == 1:
        return ON_ONE_HOST
    return EAGER if eager and exact else ON_MORE


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

    updates_there: ClassVar[bool] = False  # whether updates run on the device of the parameters
    session: Session
    group: int  # number of the optimizer's group
    slots: tuple[Slot, ...]
    weights: torch.Tensor
    gradients: torch.Tensor  # of this rank; in an operation, the averages of this rank's part
    missing: int  # gradients that this step has not brought
    # dtype to which weights are rounded before they travel; their owner keeps them as they were
    rounded: torch.dtype | None = None
    changes: int = 0  # that `take_changes` has found so far
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

    @property
    def updates_on(self) -> torch.device:
        """The device of the tensors that an update reads and writes."""
        return self.weights.device

    @staticmethod
    def dtype_of(parameter: torch.Tensor) -> torch.dtype:
        """Of `weights` and `gradients`, for this parameter."""
        return parameter.dtype

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

    def take(self, number: int, gradient: torch.Tensor) -> None:
        """Begin to copy the gradient of the parameter of a slot."""
        self.placed[number].gradient.copy_(gradient)

    def taken(self, *, wait: bool) -> bool:
        """Whether all such copies have ended."""
        return True

    def take_changes(self) -> None:
        """Before `weights` is used: have what the training itself has written to parameters."""

    def in_place(self, number: int) -> bool:
        """Whether the parameter of a slot has the memory that it had since `enter`."""
        parameter, start, stop = self.slots[number]
        return start == stop or parameter.data_ptr() == self.weights.data_ptr() + start * self.unit

    def apply(self, parameters: list[nn.Parameter]) -> None:
        """Give new weights to these parameters: see `PendingUpdate`."""

    def leave(self) -> None:
        """Give every parameter memory of its own."""
        for slot in self.slots:
            slot.parameter.data = slot.parameter.detach().clone()


def flat_buckets(
    session: Session,
    groups: Sequence[dict[str, Any]],
    parameters: Sequence[nn.Parameter],
    rounded: torch.dtype | None = None,
    kind: type[FlatBucket] = FlatBucket,
    *,
    division: Division | None = None,
) -> list[FlatBucket]:
    """Buckets of `parameters`, the last one first, as backward passes bring their gradients.

    A bucket has parameters of one group and dtype. Buckets are in the order in which their last
    gradients come. `rounded`: as of FlatBucket; `kind`: their class; `division`: by default that of
    the session's hosts. Raises: ArenaFull.
    """
    division = division or division_of(session.hosts)
    wanted = sum(_padded_bytes(p, kind) for p in parameters) // division.buckets
    full_at = min(max(wanted, division.smallest), LARGEST)
    group_of = {id(p): number for number, group in enumerate(groups) for p in group["params"]}
    backward = list(reversed(parameters))
    open_ = dict[tuple[int, torch.dtype], list[nn.Parameter]]()
    size = Counter[tuple[int, torch.dtype]]()
    full = list[tuple[int, list[nn.Parameter]]]()
    for parameter in backward:
        key = group_of[id(parameter)], kind.dtype_of(parameter)
        open_.setdefault(key, []).append(parameter)
        size[key] += _padded_bytes(parameter, kind)
        if size[key] >= full_at:
            full.append((key[0], open_.pop(key)))
            size[key] = 0
    full += [(group, run) for (group, _), run in open_.items()]
    turn = {id(parameter): at for at, parameter in enumerate(backward)}
    full.sort(key=lambda one: turn[id(one[1][-1])])
    return [_bucket(session, group, run, rounded, kind) for group, run in full]


def _bucket(
    session: Session,
    group: int,
    run: Sequence[nn.Parameter],
    rounded: torch.dtype | None,
    kind: type[FlatBucket],
) -> FlatBucket:
    dtype = kind.dtype_of(run[0])
    slots, at = list[Slot](), 0
    for parameter in run:
        slots.append(Slot(parameter, at, at + parameter.numel()))
        at += _padded_bytes(parameter, kind) // dtype.itemsize
    at = max(at, ALIGNMENT // dtype.itemsize)  # where all parameters are empty, padding travels
    weights, gradients = (session.zeros(at, dtype) for _ in range(2))
    return kind(session, group, tuple(slots), weights, gradients, len(slots), rounded)


def _padded_bytes(parameter: nn.Parameter, kind: type[FlatBucket]) -> int:
    nbytes = parameter.numel() * kind.dtype_of(parameter).itemsize
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
