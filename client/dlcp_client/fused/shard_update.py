"""The update of the parts of a bucket that this rank owns, by torch's own optimizer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.optim import Optimizer

from dlcp_client.fused.flat_bucket import FlatBucket, Slice

State = dict[str, Any]  # by torch's name: tensors, of the elements of a parameter or of a bucket


class Part:
    """Elements of a bucket that are updated together: an optimizer of their own, whose parameters
    are slices of the bucket's."""

    def __init__(self, bucket: FlatBucket, kind: type[Optimizer], start: int, stop: int) -> None:
        self._bucket = bucket
        self._tensors = {
            one: bucket.weights[one.start : one.stop] for one in bucket.slices(start, stop)
        }
        made: Any = kind  # each class that `suitability` admits has these arguments
        self._optimizer = made(self._tensors.values(), fused=True) if self._tensors else None

    def step(self, settings: Mapping[str, Any]) -> None:
        """Update the slices from their averages. `settings`: the present ones of the group."""
        if self._optimizer is None:  # padding only
            return
        self._optimizer.param_groups[0].update(settings)
        for one, tensor in self._tensors.items():
            tensor.grad = self._bucket.gradients[one.start : one.stop]
        self._optimizer.step()

    @property
    def states(self) -> Iterator[tuple[Slice, State]]:
        """The state of each slice."""
        for one, tensor in self._tensors.items():
            assert self._optimizer is not None  # noqa: S101  # it has a slice
            yield one, self._optimizer.state[tensor]


class ShardUpdate:
    """This rank's parts of a bucket, made as their steps are due: engines divide a bucket alike in
    every step of a session."""

    def __init__(self, bucket: FlatBucket, optimizer: Optimizer) -> None:
        self.bucket: Final = bucket
        self.steps = 0  # updates so far, equal on all ranks
        self._optimizer = optimizer
        self._counts = isinstance(optimizer, torch.optim.Adam)  # the state has the number of steps
        self._parts: dict[tuple[int, int], Part] = {}
        self._loaded: State = {}  # of the bucket, from a checkpoint, until the next step

    def update(self, first: int, end: int) -> None:
        """Update bytes [first, end) of the bucket."""
        unit = self.bucket.unit
        key = first // unit, end // unit
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Part(self.bucket, type(self._optimizer), *key)
            self._fill(part)
        given = {name: value for name, value in self._group.items() if name != "params"}
        part.step(given | {"fused": True, "foreach": None})

    def stepped(self) -> None:
        """All parts of this step are updated."""
        self.steps += 1
        self._loaded = {}

    @property
    def names(self) -> tuple[str, ...]:
        """torch's names of the state that each element has."""
        if self._counts:
            more = ("max_exp_avg_sq",) if self._group["amsgrad"] else ()
            return ("exp_avg", "exp_avg_sq", *more)
        return ("momentum_buffer",) if self._group["momentum"] else ()

    @property
    def nbytes(self) -> int:
        """Bytes of the state of this rank's elements."""
        return sum(state[name].nbytes for _, state in self._states() for name in self.names)

    @property
    def divided(self) -> bool:
        """Whether each rank has a part of the state; else each has all of it, or there is none."""
        return self.steps > 0 and not self._loaded

    def state(self) -> State:
        """The state of the bucket as far as this rank has it; if it is divided, 0 elsewhere."""
        if not self.divided:
            return self._loaded
        whole = {name: torch.zeros_like(self.bucket.weights) for name in self.names}
        for one, state in self._states():
            for name, tensor in whole.items():
                tensor[one.start : one.stop] = state[name]
        return whole

    def by_parameter(self, whole: State) -> list[State]:
        """The state of each parameter in torch's format, from that of the bucket."""
        return [self._of(slot, whole) for slot in range(len(self.bucket.slots))]

    def load(self, states: Sequence[State]) -> None:
        """Go on from the states of the parameters, in torch's format."""
        self._parts.clear()
        self._loaded, self.steps = {}, 0
        if not all(states):
            return
        self._loaded = {name: torch.zeros_like(self.bucket.weights) for name in self.names}
        for slot, state in zip(self.bucket.slots, states, strict=True):
            for name, whole in self._loaded.items():
                whole[slot.start : slot.stop] = state[name].reshape(-1)
        self.steps = int(states[0]["step"]) if self._counts else 1

    @property
    def _group(self) -> dict[str, Any]:
        return self._optimizer.param_groups[self.bucket.group]

    def _of(self, number: int, whole: State) -> State:
        parameter, start, stop = self.bucket.slots[number]
        found = {name: t[start:stop].view(parameter.shape).clone() for name, t in whole.items()}
        if found and self._counts:
            return {"step": torch.tensor(float(self.steps)), **found}
        return found

    def _fill(self, part: Part) -> None:
        """Give a part that is new the state of a checkpoint."""
        for one, state in part.states if self._loaded else ():
            for name, whole in self._loaded.items():
                state[name] = whole[one.start : one.stop].clone()
            if self._counts:
                state["step"] = torch.tensor(float(self.steps))

    def _states(self) -> Iterator[tuple[Slice, State]]:
        for part in self._parts.values():
            yield from part.states
