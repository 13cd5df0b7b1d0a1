"""Which tensors dlcpd can reduce, and the fastest way to copy their bytes."""

import ctypes
from typing import Any, Final

import torch

from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import DTYPES, MAX_ELEMENTS

_NAMES: Final = {getattr(torch, name): name for name in DTYPES}


def dtype_name(tensor: torch.Tensor) -> str:
    """The contract's name of a checked tensor's dtype."""
    return _NAMES[tensor.dtype]


def check(tensor: Any) -> None:
    """Raises: BadTensor saying what was found and what to do about it."""
    problem = _kind_problem(tensor) or _layout_problem(tensor)
    if problem:
        raise BadTensor(problem)


def _kind_problem(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor):
        return f"{type(tensor).__name__} is no torch.Tensor"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(tensor).__name__} is a tensor subclass; pass the plain tensor it wraps"
    if tensor.device.type != "cpu":
        return (
            f"the tensor is on {tensor.device}; dlcpd reduces CPU tensors only for now: "
            f"copy it with .cpu() and copy the result back"
        )
    if tensor.dtype not in _NAMES:
        return f"dtype {tensor.dtype} cannot be reduced; convert to one of {', '.join(DTYPES)}"
    return ""


def _layout_problem(tensor: torch.Tensor) -> str:
    if tensor.layout is not torch.strided:
        return f"layout {tensor.layout} is not dense; use .to_dense()"
    if tensor.is_conj():
        return "the tensor is a conjugated view; use .resolve_conj()"
    if not tensor.is_contiguous() or tensor.is_neg():
        return (
            f"the tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not "
            f"contiguous; reduce .contiguous() and copy the result back"
        )
    if tensor.numel() > MAX_ELEMENTS:
        return f"{tensor.numel()} elements, at most {MAX_ELEMENTS} at once; split the tensor"
    return ""


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors have bytes in common."""
    first, second = sorted((one, other), key=torch.Tensor.data_ptr)
    return bool(second.nbytes) and second.data_ptr() < first.data_ptr() + first.nbytes


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source` to `target`: contiguous CPU tensors of equal size in bytes."""
    copy_bytes(target.data_ptr(), source.data_ptr(), target.nbytes)


def copy_bytes(target: int, source: int, size: int) -> None:
    """Copy `size` bytes from one address to another.

    memmove, not Tensor.copy_: streaming stores and no OpenMP team. Two OpenMP threads that
    share cores with the engine took 10 ms for 64 MB, this 3.5 ms.
    """
    ctypes.memmove(target, source, size)
