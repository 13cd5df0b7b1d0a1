"""Functional collectives that PyTorch runs on a group's C++ backend, which dlcpd's groups lack.

Of `torch.ops._c10d_functional`, all but two call methods of the group, in Python too. Compiled code
contains both: bucketed gathers of FSDP2, and batches of messages.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch._C import _distributed_c10d as torch_c10d
from torch.distributed.distributed_c10d import GroupName

from dlcpd.contract.errors import BadOperation

from .errors import torch_errors
from .per_device import PerDevice

_OPERATIONS: Final = torch.ops._c10d_functional  # noqa: SLF001  # no public name
_KEY_OF_PYTORCH: Final = torch._C.DispatchKey.CompositeExplicitAutograd  # noqa: SLF001  # no public name
_KEYS: Final = ("CPU", "CUDA")  # more specific than PyTorch's: the dispatcher prefers them
# In place while referenced.
_KERNELS: Final = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]  # of PyTorch


def _gather(given: torch.Tensor, size: int, group: Any, *, out: torch.Tensor) -> torch.Tensor:
    """`all_gather_into_tensor_out`: an all-gather of `given` into `out`."""
    ours = _ours(group)
    if ours is None:
        return _pytorchs("all_gather_into_tensor_out")(given, size, group, out=out)  # type: ignore[no-any-return]
    torch_c10d._register_work(out, ours.all_gather_single(out, given))  # noqa: SLF001  # as above
    return out


def _messages(
    operations: Sequence[str],
    peers: Sequence[int],
    tags: Sequence[int],
    tensors: Sequence[torch.Tensor],
    group: str,
) -> list[torch.Tensor]:
    """`batch_p2p_ops`: one result per message; of a sent one it is empty, and ends with it.

    Raises: BadOperation.
    """
    ours = _ours(group)
    if ours is None:
        return _pytorchs("batch_p2p_ops")(operations, peers, tags, tensors, group)  # type: ignore[no-any-return]
    results = []
    for operation, peer, tag, tensor in zip(operations, peers, tags, tensors, strict=True):
        if operation == "isend":
            result, work = tensor.new_empty(0), ours.send([tensor], peer, tag)
        elif operation == "irecv":
            result, work = tensor, ours.recv([tensor], peer, tag)
        else:
            with torch_errors():
                raise BadOperation(f"batch_p2p_ops: {operation!r} is neither isend nor irecv")
        torch_c10d._register_work(result, work)  # noqa: SLF001  # as above
        results.append(result)
    return results


def _ours(group: Any) -> Any:
    """The group, given by name or itself, if it is of dlcpd; else None."""
    if isinstance(group, str):
        group = torch_c10d._resolve_process_group(GroupName(group))  # noqa: SLF001  # no public name
    return group if isinstance(group, PerDevice) else None


def _pytorchs(name: str) -> Callable[..., Any]:
    """PyTorch's own kernel, for groups of other backends."""
    return partial(getattr(_OPERATIONS, name).default._op_dk, _KEY_OF_PYTORCH)  # noqa: SLF001  # as above


for _key in _KEYS:
    _KERNELS.impl("all_gather_into_tensor_out", _gather, _key)  # type: ignore[no-untyped-call]  # of PyTorch
    _KERNELS.impl("batch_p2p_ops", _messages, _key)  # type: ignore[no-untyped-call]  # of PyTorch
