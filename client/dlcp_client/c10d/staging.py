"""Converts tensors to the transport's form (1-D, contiguous, one dtype) and results back."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from msgspec import Struct

from dlcp_client.device.registry import device_of
from dlcpd.contract.errors import BadTensor

from .transport import Flat

BYTES: Final = torch.uint8  # dtype of operations that copy; no reduction uses it
APART: Final = 16 << 10  # bytes of a tensor, on average: copying less costs less than describing it


class Buffer(Struct, frozen=True, eq=False):
    """The values of several tensors of the caller, concatenated, in the transport's form."""

    whole: Flat  # as the transport takes them: one of all tensors, or a tuple with one of each
    tensors: tuple[torch.Tensor, ...]  # of the caller, of one dtype
    sizes: tuple[int, ...]  # elements in that form by tensor

    @property
    def flats(self) -> tuple[torch.Tensor, ...]:
        """The values: one tensor of all, or one of each."""
        return self.whole if isinstance(self.whole, tuple) else (self.whole,)

    @property
    def count(self) -> int:
        """Elements."""
        return sum(self.sizes)

    @property
    def uneven(self) -> tuple[int, ...] | None:
        """The sizes if they differ; else None."""
        return None if len(set(self.sizes)) <= 1 else self.sizes

    def multiply(self, factor: float | torch.Tensor) -> None:
        """Multiply all values by `factor`."""
        for flat in self.flats:
            flat.mul_(factor)

    def copy_back(self) -> None:
        """Copy the values to the caller's tensors, unless they share memory."""
        tensors, flats = self.tensors, self.whole
        if not isinstance(flats, tuple):
            flats = (flats,) if len(tensors) == 1 else torch.split(flats, list(self.sizes))
        if all(map(_share, flats, tensors)):
            return
        # On a thread without the caller's modes: results may be inference tensors, which only
        # inference mode changes in place.
        with torch.inference_mode():
            for part, tensor in zip(flats, tensors, strict=True):
                if not _share(part, tensor):
                    tensor.copy_(_decoded(part, tensor))


def lent(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """The values of `tensors`, without a copy of one that is contiguous and of that dtype; small
    ones are concatenated.

    Raises: BadTensor.
    """
    given = _checked(tensors)
    if len(given) == 1:
        flat = _encoded(given[0], carried)
        return Buffer(flat, given, (flat.numel(),))
    flats = tuple([_encoded(tensor, carried) for tensor in given])
    sizes = tuple([flat.numel() for flat in flats])
    return Buffer(flats if _apart(given) else torch.cat(flats), given, sizes)


def copied(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """As `lent`, but never the caller's memory.

    Raises: BadTensor.
    """
    buffer = lent(tensors, carried)
    whole, given = buffer.whole, buffer.tensors
    if isinstance(whole, tuple):
        return Buffer(torch.cat(whole), given, buffer.sizes)
    if len(given) == 1 and _share(whole, given[0]):
        return Buffer(whole.clone(), given, buffer.sizes)
    return buffer


def room(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """A buffer for results of `tensors`: their own memory if possible.

    Raises: BadTensor.
    """
    if len(tensors) == 1:
        return lent(tensors, carried)
    given = _checked(tensors)
    if _apart(given) and all([tensor.is_contiguous() for tensor in given]):
        return lent(tensors, carried)
    sizes = tuple([_size(tensor, carried) for tensor in given])
    flat = torch.empty(sum(sizes), dtype=carried, device=given[0].device)
    return Buffer(flat, given, sizes)


def _apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the transport takes the tensors one by one: large ones on the CPU."""
    size = sum([tensor.nbytes for tensor in tensors])
    return tensors[0].device.type == "cpu" and size >= APART * len(tensors)


def _share(flat: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether `flat`, which has the values of `tensor`, is its memory."""
    return flat.numel() == 0 or flat.data_ptr() == tensor.data_ptr()


def _checked(tensors: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The tensors without their autograd history."""
    if not tensors:
        raise BadTensor("requires non-empty tensor list")
    device_of(tensors[0])
    for tensor in tensors:
        if tensor.device != tensors[0].device:
            raise BadTensor(
                f"one call has tensors on {tensor.device} and on {tensors[0].device}: use one "
                "device per call"
            )
        if tensor.layout is not torch.strided:
            raise BadTensor(f"layout {tensor.layout} is not dense; use .to_dense()")
        if tensor.dtype != tensors[0].dtype:
            raise BadTensor(
                f"invalid tensor type: {tensor.dtype} beside {tensors[0].dtype}: use one dtype per "
                f"call"
            )
    if len(tensors) == 1:
        return (tensors[0].detach(),)
    return tuple([tensor.detach() for tensor in tensors])


def _size(tensor: torch.Tensor, carried: torch.dtype) -> int:
    if carried is BYTES:
        return tensor.nbytes
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def _encoded(tensor: torch.Tensor, carried: torch.dtype) -> torch.Tensor:
    """A tensor's values, flat; a view if it is contiguous and of that dtype. Conjugation and
    negation are applied."""
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    if carried is BYTES:
        return tensor.view(-1).view(torch.uint8)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(-1).to(carried)


def _decoded(flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The values of `flat` in the shape of `like`; the inverse of `_encoded`."""
    if flat.dtype is BYTES:
        return flat.view(like.dtype).view(like.shape)
    if like.is_complex():
        return torch.view_as_complex(flat.view(*like.shape, 2))
    return flat.view(like.shape)
