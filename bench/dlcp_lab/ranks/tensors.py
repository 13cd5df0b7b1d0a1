"""Converts between torch tensors and stored elements of the reference: views, never copies."""

from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore  # torch.distributed re-exports it untyped

import dlcp_client
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.reference import Stored

TORCH: Final = {
    name: getattr(torch, name)
    for name in ("float32", "float64", "float16", "bfloat16", "int32", "int64")
}


def as_tensor(stored: Stored, dtype: str) -> torch.Tensor:
    """The same memory as a tensor."""
    if dtype == "bfloat16":
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(stored)


def as_stored(tensor: torch.Tensor) -> Stored:
    """The same memory as stored elements."""
    if tensor.dtype == torch.bfloat16:
        bits: Stored = tensor.view(torch.int16).numpy().view(np.uint16)
        return bits
    plain: Stored = tensor.numpy()
    return plain


def join_file_store(conductor: Conductor, **options: Any) -> dlcp_client.Session:
    """A session of all ranks, joined through a file store; `options` are those of `connect`."""
    torch.set_num_threads(1)
    store = FileStore(conductor.store, conductor.world_size)
    return dlcp_client.connect(store, conductor.rank, conductor.world_size, **options)


def join_gloo(conductor: Conductor) -> None:
    """Make this process a rank of a Gloo group."""
    join_backend(conductor, "gloo")


def join_backend(conductor: Conductor, backend: str) -> None:
    """Make this process a rank of a process group of torch, joined through a file: no port, any
    namespace."""
    torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        init_method=f"file://{conductor.store}",
        rank=conductor.rank,
        world_size=conductor.world_size,
    )
