"""Converts tensors to the transport's form (1-D, contiguous, one dtype) and results back."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from msgspec import Struct

from dlcp_client.device.registry import device_of
from dlcpd.contract.errors import BadTensor

BYTES: Final = torch.uint8  # dtype of operations that copy; no reduction uses it


class Buffer(Struct, frozen=True, eq=False):
    """One flat tensor that holds the values of several tensors of the caller, concatenated."""

    flat: torch.Tensor
    tensors: tuple[torch.Tensor, ...]  # of the caller, of one dtype
    sizes: tuple[int, ...]  # elements of `flat` by tensor

    @property
    def shared(self) -> bool:
        """Whether `flat` is the caller's own memory."""
        flat, tensors = self.flat, self.tensors
        if len(tensors) != 1:
            return False
        return flat.numel() == 0 or flat.data_ptr() == tensors[0].data_ptr()

    @property
    def uneven(self) -> tuple[int, ...] | None:
        """The sizes if they differ; else None."""
        return None if len(set(self.sizes)) <= 1 else self.sizes

    def copy_back(self) -> None:
        """Copy the values of `flat` to the caller's tensors, unless they share memory."""
        if self.shared:
            return
        # On a thread without the caller's modes: results may be inference tensors, which only
        # inference mode changes in place.
        with torch.inference_mode():
            for part, tensor in zip(
                torch.split(self.flat, list(self.sizes)), self.tensors, strict=True
            ):
                tensor.copy_(_decoded(part, tensor))


def lent(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """The values of `tensors`, without a copy for a single contiguous tensor of that dtype.

    Raises: BadTensor.
    """
    given = _checked(tensors)
    if len(given) == 1:
        flat = _encoded(given[0], carried)
        return Buffer(flat, given, (flat.numel(),))
    parts = [_encoded(tensor, carried) for tensor in given]
    return Buffer(torch.cat(parts), given, tuple(part.numel() for part in parts))


def copied(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """As `lent`, but never the caller's memory.

    Raises: BadTensor.
    """
    buffer = lent(tensors, carried)
    if not buffer.shared:
        return buffer
    return Buffer(buffer.flat.clone(), buffer.tensors, buffer.sizes)


def room(tensors: Sequence[torch.Tensor], carried: torch.dtype) -> Buffer:
    """A buffer for results of `tensors`: a single tensor's own memory if possible.

    Raises: BadTensor.
    """
    if len(tensors) == 1:
        return lent(tensors, carried)
    given = _checked(tensors)
    sizes = tuple(_size(tensor, carried) for tensor in given)
    flat = torch.empty(sum(sizes), dtype=carried, device=given[0].device)
    return Buffer(flat, given, sizes)


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
