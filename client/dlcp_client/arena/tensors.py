"""torch tensors as Blocks, and the check that dlcpd can reduce them."""

from collections.abc import Hashable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from msgspec.structs import replace

from dlcp_client.arena.blocks import Block, chained
from dlcp_client.arena.memory import SharedArena, copy_bytes
from dlcp_client.device.registry import device_of
from dlcp_client.ranges import RANGES
from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import DTYPES, MAX_ELEMENTS, REDUCE_OPS

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_NAMES: Final = {getattr(torch, name): name for name in DTYPES}
_OPS: Final[dict[Hashable, str]] = {getattr(dist.ReduceOp, op.upper()): op for op in REDUCE_OPS}


class TorchLibrary:
    """The Library of torch."""

    nothing: Final = torch.empty(0)
    ranges: Final = RANGES

    def block(self, tensor: Any) -> Block[torch.Tensor]:
        """Raises: BadTensor."""
        if tensor.__class__ is tuple:
            return chained([self.block(part) for part in tensor])
        problem = _problem(tensor)
        if problem:
            raise BadTensor(problem)
        address, count, dtype = tensor.data_ptr(), tensor.numel(), _NAMES[tensor.dtype]
        return Block(tensor, address, count, tensor.itemsize, dtype, device=device_of(tensor))

    def part(self, block: Block[torch.Tensor], start: int, stop: int) -> Block[torch.Tensor]:
        part: torch.Tensor = block.array.detach().view(-1)[start:stop]
        address = block.address + start * block.itemsize
        return replace(block, array=part, address=address, count=stop - start)

    def empty(self, arena: SharedArena, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        """Raises: ArenaFull; nothing changed."""
        kind: torch.dtype = dtype or torch.float32
        size = torch.Size(shape).numel() * kind.itemsize
        if size == 0:
            return torch.empty(tuple(shape), dtype=kind)
        return torch.frombuffer(arena.memory(size), dtype=kind).view(tuple(shape))

    def operation(self, op: Any) -> Any:
        """`op` as the contract's name. A ReduceOp object and its enum member are both instances."""
        return _OPS.get(getattr(op, "op", op)) or op if isinstance(op, dist.ReduceOp) else op


TENSORS: Final = TorchLibrary()


def _problem(tensor: Any) -> str:
    """The reason why dlcpd cannot reduce `tensor`, and what to do; "": it can."""
    if not isinstance(tensor, torch.Tensor):
        return f"{type(tensor).__name__} is not a torch.Tensor"
    if type(tensor) not in _PLAIN:
        return f"{type(tensor).__name__} is a tensor subclass; pass the plain tensor inside it"
    if tensor.dtype not in _NAMES:
        return f"dtype {tensor.dtype} cannot be reduced; convert to one of {', '.join(DTYPES)}"
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
        return (
            f"a tensor of {tensor.numel()} elements is too large: one operation takes at most "
            f"{MAX_ELEMENTS}; split the tensor"
        )
    return ""


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source` to `target`: contiguous CPU tensors of equal size in bytes."""
    copy_bytes(target.data_ptr(), source.data_ptr(), target.nbytes)
