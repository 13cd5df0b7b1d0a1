"""Buckets of parameters on a device, whose weights and averages are in host memory.

Gradients reach the daemon through host memory in any case. With updates there, the optimizer's
state, and weights in float32, need no memory of the device; only gradients leave it, and new
weights return. With updates on the device, this rank's averages return, and its new weights leave.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from dlcp_client.device.registry import device_of
from dlcp_client.device.seam import Event
from dlcp_client.fused.flat_bucket import FlatBucket, Slot


class SeenValues(NamedTuple):
    """The memory of a parameter, and the version of the values that `weights` has."""

    address: int
    version: int


@dataclass(slots=True, eq=False)
class DeviceBucket(FlatBucket):
    """A bucket whose parameters stay on their devices."""

    _fetched: list[tuple[Event, torch.Tensor]] = field(default_factory=list)  # keeps gradients
    _delivered: list[Event] = field(default_factory=list)
    _seen: dict[int, SeenValues] = field(default_factory=dict)  # by id of the parameter

    @staticmethod
    def dtype_of(parameter: torch.Tensor) -> torch.dtype:
        return torch.float64 if parameter.dtype is torch.float64 else torch.float32

    def enter(self) -> None:
        for slot in self.slots:
            self._read(slot)

    def leave(self) -> None:
        self._await_delivered()

    def take(self, number: int, gradient: torch.Tensor) -> None:
        slot = self.slots[number]
        if slot.start == slot.stop:
            return
        source = gradient.detach().to(self.gradients.dtype).contiguous()
        event = self.session.fetch(self.gradients[slot.start : slot.stop], source)
        self._fetched.append((event, source))

    def taken(self, *, wait: bool) -> bool:
        while self._fetched:
            event, _ = self._fetched[0]
            if wait:
                event.wait()
            elif not event.done():
                return False
            self._fetched.pop(0)
        return True

    def take_changes(self) -> None:
        self._await_delivered()
        for slot in self.slots:
            if self._seen[id(slot.parameter)].version != _version(slot.parameter):
                self._read(slot)

    def in_place(self, number: int) -> bool:
        parameter = self.slots[number].parameter
        return parameter.data_ptr() == self._seen[id(parameter)].address

    def apply(self, parameters: list[nn.Parameter]) -> None:
        wanted = set(map(id, parameters))
        for parameter, start, stop in self.slots:
            if id(parameter) in wanted and start < stop:
                values = parameter.data
                if values.dtype != self.weights.dtype:
                    values = torch.empty_like(values, dtype=self.weights.dtype)
                self._delivered.append(self.session.deliver(values, self.weights[start:stop]))
                if values.dtype != parameter.dtype:
                    parameter.data.copy_(values)

    def _read(self, slot: Slot) -> None:
        parameter: Any = slot.parameter
        self.weights[slot.start : slot.stop].view(parameter.shape).copy_(parameter.detach())
        self.changes += 1
        self._seen[id(parameter)] = SeenValues(parameter.data_ptr(), _version(parameter))

    def _await_delivered(self) -> None:
        while self._delivered:
            self._delivered.pop(0).wait()


class UpdatedOnDevice(DeviceBucket):
    """A bucket whose parameters stay on their devices, where this rank's part is updated, too."""

    __slots__ = ()
    updates_there = True

    @property
    def updates_on(self) -> torch.device:
        return self.slots[0].parameter.device


def kind_of_buckets(parameters: Iterable[torch.Tensor], where: str) -> type[FlatBucket]:
    """For parameters that `suitability` admits."""
    if all(device_of(parameter) is None for parameter in parameters):
        return FlatBucket
    return UpdatedOnDevice if where == "device" else DeviceBucket


def _version(parameter: torch.Tensor) -> int:
    return parameter._version  # noqa: SLF001  # no public name
