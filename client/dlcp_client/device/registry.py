"""Finds the device of a tensor; None is the host, where no staging is needed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

from dlcp_client.device.cuda import cuda
from dlcp_client.device.seam import Device
from dlcpd.contract.errors import BadTensor

Find = Callable[[torch.Tensor], Device | None]

_finders: Final[list[Find]] = []  # of devices that torch does not know: the fake one


def device_of(tensor: torch.Tensor) -> Device | None:
    """The device of `tensor`. Raises: BadTensor for a device that is unsupported or missing."""
    for find in _finders:
        if (found := find(tensor)) is not None:
            return found
    place = tensor.device
    if place.type == "cpu":
        return None
    if place.type == "cuda":
        return cuda(place.index or 0)
    raise BadTensor(
        f"the tensor is on {place}, and dlcpd supports the CPU and CUDA: copy it with .cpu() "
        "and copy the result back"
    )


def kind_of(tensor: torch.Tensor) -> str:
    """The type of a tensor's device, as PyTorch names it; "cuda" if PyTorch does not know it."""
    for find in _finders:
        if find(tensor) is not None:
            return "cuda"
    return tensor.device.type


@contextmanager
def extended(find: Find) -> Iterator[None]:
    """Inside, `find` is the first to look up a tensor's device."""
    _finders.insert(0, find)
    try:
        yield
    finally:
        _finders.remove(find)
