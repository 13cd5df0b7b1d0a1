"""The reference transport: the framework gathers all gradients, each rank adds them in rank order.

This is the sum that dlcpd's exact mode promises, computed without dlcpd: any collective library can
gather without arithmetic, and dlcp_lab.ranks.reference adds.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dlcp_lab.ranks import reference
from dlcp_lab.ranks.tensors import as_stored, as_tensor


def register(model: DistributedDataParallel) -> None:
    """Register a hook that averages gradients in rank order. Every rank calls it."""
    model.register_comm_hook(None, _hook)


def _hook(_state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
    done: Future[torch.Tensor] = Future()
    done.set_result(average(bucket.buffer()))
    return done


def average(buffer: torch.Tensor) -> torch.Tensor:
    """Mean over the ranks of a flat tensor, as a new one.

    Added and divided by reference.all_reduce: 16-bit floats in float32, rounded once.
    """
    parts = [torch.empty_like(buffer) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, buffer)
    dtype = str(buffer.dtype).removeprefix("torch.")
    mean = reference.all_reduce([as_stored(part) for part in parts], dtype, "avg")
    return as_tensor(mean, dtype)
