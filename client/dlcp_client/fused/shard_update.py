"""The update of the parts of a bucket that this rank owns, by torch's own optimizer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.optim import Optimizer

from dlcp_client.fused.flat_bucket import FlatBucket, Slice
from dlcp_client.fused.lamb import LAMB, move, squares
from dlcp_client.fused.program_optimizer import ProgramOptimizer
from dlcp_client.fused.update_place import place_of

State = dict[str, Any]  # by torch's name: tensors, of the elements of a parameter or of a bucket


class Part:
    """Elements of a bucket that are updated together: an optimizer of their own, whose parameters
    are tensors of a place (see `update_place`)."""

    def __init__(self, bucket: FlatBucket, like: Optimizer, start: int, stop: int) -> None:
        """`like`: the training's optimizer."""
        self._place = place_of(bucket, start, stop)
        made: Any = like  # of one of the classes that `suitability` admits
        self._kernel: dict[str, bool] = {}
        self._optimizer: Optimizer | None = None  # None: padding only
        if not self._place.tensors:
            return
        if isinstance(like, LAMB | ProgramOptimizer):
            self._optimizer = made.of_parts(self._place.tensors.values())
        else:
            self._kernel = {"fused": True}
            self._optimizer = type(made)(self._place.tensors.values(), **self._kernel)

    def step(self, settings: Mapping[str, Any]) -> None:
        """Update the slices from their averages. `settings`: the present ones of the group."""
        if self._optimizer is None:
            return
        self._optimizer.param_groups[0].update({**settings, **self._kernel, "foreach": None})
        place = self._place
        place.take_changes()
        place.take_averages()
        for one, tensor in place.tensors.items():
            tensor.grad = place.averages[one]
        self._optimizer.step()
        place.publish()

    def direct(self, settings: Mapping[str, Any], squared: torch.Tensor) -> None:
        """Of LAMB: replace the averages by directions, and add the squares of weights and
        directions to `squared[:, parameter]`."""
        place = self._place
        place.take_changes()
        place.take_averages()
        for one, tensor in place.tensors.items():
            assert isinstance(self._optimizer, LAMB)  # noqa: S101  # see `LayerNorms`
            way = self._optimizer.direction(tensor, place.averages[one], settings)
            both = torch.stack((squares(tensor), squares(way)))
            squared[:, one.slot] += both.to(squared.device)

    def move(self, settings: Mapping[str, Any], ratios: torch.Tensor) -> None:
        """Of LAMB, after `direct`: update the slices. `ratios`: by parameter of the bucket."""
        for one, tensor in self._place.tensors.items():
            move(tensor, self._place.averages[one], settings, float(ratios[one.slot]))
        self._place.publish()

    def forget(self) -> None:
        """Drop the state, not the weights."""
        if self._optimizer is not None:
            self._optimizer.state.clear()

    def fill(self, loaded: State, steps: int | None) -> None:
        """Go on from the state of a bucket after `steps`; None: its optimizer counts none."""
        for one, state in self.states:
            place = self._place.tensors[one].device
            for name, whole in loaded.items():
                state[name] = whole[one.start : one.stop].to(place, copy=True)
            if steps is not None:
                state["step"] = torch.tensor(float(steps), device=place)

    def put_masters(self, whole: torch.Tensor) -> None:
        """Write the masters to a tensor of the bucket's size."""
        self._place.take_changes()
        for one, master in self._place.tensors.items():
            whole[one.start : one.stop] = master

    @property
    def states(self) -> Iterator[tuple[Slice, State]]:
        """The state of each slice."""
        for one, tensor in self._place.tensors.items():
            assert self._optimizer is not None  # noqa: S101  # it has a slice
            yield one, self._optimizer.state[tensor]


class ShardUpdate:
    """This rank's parts of a bucket, made as their steps are due: engines divide a bucket alike in
    every step of a session."""

    def __init__(self, bucket: FlatBucket, optimizer: Optimizer) -> None:
        self.bucket: Final = bucket
        self.steps = 0  # updates so far, equal on all ranks
        self.has_masters = False  # whether there are masters, if there ever are; likewise
        self._optimizer = optimizer
        # Whether the state has the number of steps
        self.counts = isinstance(optimizer, torch.optim.Adam | LAMB | ProgramOptimizer)
        self.ratios: torch.Tensor | None = None  # of LAMB, by parameter, in this step
        self._parts: dict[tuple[int, int], Part] = {}
        if isinstance(optimizer, LAMB | ProgramOptimizer):
            # compiles for its dtype now, not within a step
            optimizer.of_parts([bucket.weights.new_empty(0, device=bucket.updates_on)])
        self._everywhere = False  # whether each rank updates all of the bucket
        self._kept: tuple[str, ...] = ()  # names of the state that updates have kept
        self._loaded: State = {}  # all of the bucket's, on every rank, until the next step

    def update(self, first: int, end: int) -> None:
        """Update bytes [first, end) of the bucket."""
        part = self._part(first, end)
        if self.ratios is None:
            part.step(self._settings)
        else:
            part.move(self._settings, self.ratios)

    def keep(self, first: int, end: int) -> None:
        """Instead of `update`, in a step that is dropped: the engine rounds weights all the same,
        so their masters are made before."""
        self._part(first, end)

    def direct(self, first: int, end: int, squared: torch.Tensor) -> None:
        """As `Part.direct`, of bytes [first, end) of the bucket."""
        self._part(first, end).direct(self._settings, squared)

    def stepped(self) -> None:
        """All parts of this step are updated."""
        self.steps += 1
        self.has_masters = True
        self._kept = tuple(dict.fromkeys((*self._kept, *self.names)))
        self._loaded = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The optimizer's names of the state that each element has."""
        if isinstance(self._optimizer, ProgramOptimizer):
            return tuple(self._optimizer.state_names)
        if self.counts:
            more = ("max_exp_avg_sq",) if self._group.get("amsgrad") else ()
            return ("exp_avg", "exp_avg_sq", *more)
        return ("momentum_buffer",) if self._group["momentum"] else ()

    @property
    def lacking(self) -> str:
        """The state that a setting needs, and that no update has kept so far; empty: there is
        none."""
        begins_later = not self.counts or not self.steps  # SGD's momentum begins at any step
        absent = [] if begins_later else [name for name in self.names if name not in self._kept]
        return absent[0] if absent else ""

    @property
    def nbytes(self) -> int:
        """Bytes of the state of this rank's elements."""
        if self._loaded:
            return sum(whole.nbytes for whole in self._loaded.values())
        return sum(
            state[name].nbytes for _, state in self._states() if state for name in self._kept
        )

    @property
    def divided(self) -> bool:
        """Whether each rank has a part of the state; else each has all of it, or there is none."""
        return self.steps > 0 and not self._loaded and not self._everywhere

    def state(self) -> State:
        """The state of the bucket as far as this rank has it; if it is divided, 0 elsewhere."""
        if not self.steps or self._loaded:
            return self._loaded
        whole = {name: torch.zeros_like(self.bucket.weights) for name in self._kept}
        for one, state in self._states():
            for name, tensor in whole.items():
                tensor[one.start : one.stop] = state[name]
        return whole

    def by_parameter(self, whole: State) -> list[State]:
        """The state of each parameter in torch's format, from that of the bucket."""
        return [self._of(slot, whole) for slot in range(len(self.bucket.slots))]

    def masters(self) -> State:
        """The weights of the bucket before they were rounded, as far as this rank has them, and 0
        elsewhere. Nothing if they are not rounded, or not updated yet."""
        if self.bucket.rounded is None or not self.has_masters:
            return {}
        whole = torch.zeros_like(self.bucket.weights)
        for part in self._parts.values():
            part.put_masters(whole)
        return {"weights": whole}

    def rearrange(self, whole: State, *, everywhere: bool) -> None:
        """Go on from the present state, of which every rank has all, in other parts; `everywhere`:
        in one of the whole bucket."""
        self._parts, self._loaded, self._everywhere = {}, whole, everywhere

    def load(self, states: Sequence[State]) -> None:
        """Go on from the states of the parameters, in torch's format."""
        for part in self._parts.values():
            part.forget()
        self._loaded, self._kept, self.steps = {}, (), 0
        if not all(states):
            return
        self._loaded = {name: torch.zeros_like(self.bucket.weights) for name in self.names}
        for slot, state in zip(self.bucket.slots, states, strict=True):
            for name, whole in self._loaded.items():
                whole[slot.start : slot.stop] = state[name].reshape(-1)
        self._kept = tuple(self._loaded)
        self.steps = int(states[0]["step"]) if self.counts else 1
        for part in self._parts.values():
            self._fill(part)

    @property
    def _group(self) -> dict[str, Any]:
        return self._optimizer.param_groups[self.bucket.group]

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in self._group.items() if name != "params"}

    def _part(self, first: int, end: int) -> Part:
        """Bytes [first, end) of the bucket."""
        key = first // self.bucket.unit, end // self.bucket.unit
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Part(self.bucket, self._optimizer, *key)
            self._fill(part)
        return part

    def _of(self, number: int, whole: State) -> State:
        parameter, start, stop = self.bucket.slots[number]
        found = {name: t[start:stop].view(parameter.shape).clone() for name, t in whole.items()}
        if found and self.counts:
            return {"step": torch.tensor(float(self.steps)), **found}
        return found

    def _fill(self, part: Part) -> None:
        """Give a part that is new, or has forgotten its state, what is loaded."""
        if self._loaded:
            part.fill(self._loaded, self.steps if self.counts else None)

    def _states(self) -> Iterator[tuple[Slice, State]]:
        for part in self._parts.values():
            yield from part.states
