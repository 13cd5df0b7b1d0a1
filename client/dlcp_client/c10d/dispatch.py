"""Operations of a process group, for CommDebugMode.

CommDebugMode counts operations that torch's dispatcher runs (`c10d::allreduce_` and its like). The
methods of a process group in Python run outside the dispatcher, so they report themselves.
"""

import sys
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_MODULE: Final = "torch.distributed.tensor.debug._comm_mode"
_OPERATIONS: Final = {  # names of the dispatcher, by the group's method
    "allreduce": "allreduce_", "allreduce_coalesced": "allreduce_coalesced_",
    "reduce": "reduce_", "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_",
    "broadcast": "broadcast_", "allgather": "allgather_",
    "allgather_coalesced": "allgather_coalesced_", "all_gather_single": "_allgather_base_",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced_", "gather": "gather_",
    "scatter": "scatter_", "all_to_all_single": "alltoall_base_", "alltoall": "alltoall_",
    "send": "send", "recv": "recv_", "recv_anysource": "recv_any_source_", "barrier": "barrier",
}  # fmt: skip


class _CompletedOperator:
    """An operation that has run: called by a mode, as an operation of the dispatcher is, it does
    nothing."""

    def __init__(self, method: str) -> None:
        self._overloadpacket = getattr(torch.ops.c10d, _OPERATIONS[method])

    def __call__(self, *_: Any, **__: Any) -> None:
        pass

    def __str__(self) -> str:
        return f"{self._overloadpacket}.default"


def count(method: str) -> None:
    """Let each active CommDebugMode of this thread count a call of this method."""
    if not torch._C._len_torch_dispatch_stack() or _MODULE not in sys.modules:  # noqa: SLF001  # no public name
        return
    mode = sys.modules[_MODULE].CommDebugMode
    for active in _get_current_dispatch_mode_stack():
        if isinstance(active, mode):
            active.__torch_dispatch__(_CompletedOperator(method), ())
