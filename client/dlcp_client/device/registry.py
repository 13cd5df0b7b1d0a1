"""On which device a tensor is: None is the host, where it needs no staging."""

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
    """Raises: BadTensor for a device that cannot be staged, or is not there."""
    for find in _finders:
        if (found := find(tensor)) is not None:
            return found
    place = tensor.device
    if place.type == "cpu":
        return None
    if place.type == "cuda":
        return cuda(place.index or 0)
    raise BadTensor(
        f"the tensor is on {place}; dlcpd takes tensors of the CPU and of CUDA: copy it with "
        f".cpu() and copy the result back"
    )


def kind_of(tensor: torch.Tensor) -> str:
    """The kind of a tensor's device, as PyTorch names it. One that PyTorch does not know stands for
    CUDA."""
    known = all(find(tensor) is None for find in _finders)
    return tensor.device.type if known else "cuda"


@contextmanager
def extended(find: Find) -> Iterator[None]:
    """Meanwhile `find` is asked first where a tensor is."""
    _finders.insert(0, find)
    try:
        yield
    finally:
        _finders.remove(find)
