"""CommDebugMode counts the operations of our groups as it counts those of Gloo's."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from tests.c10d.worlds import over

Counts = dict[str, int]


def counted(rank: int, size: int) -> tuple[Counts, Counts, str]:
    """Counts of calls and of a step of FSDP2, by the dispatcher's names; the table of modules."""
    mine, several = torch.ones(4), torch.ones(4 * size)
    parts = list(several.view(size, 4).unbind())
    mesh: Any = init_device_mesh("cpu", (size,))
    with CommDebugMode() as calls:  # type: ignore[no-untyped-call]
        dist.all_reduce(mine)
        dist.reduce(mine, 0)
        dist.broadcast(mine, 0)
        dist.all_gather(parts, mine)
        dist.all_gather_single(several, mine)
        dist.gather(mine, parts if rank == 0 else None)
        dist.scatter(mine, parts if rank == 0 else None)
        dist.reduce_scatter(mine, parts)
        dist.reduce_scatter_single(mine, several)
        dist.all_to_all_single(torch.empty_like(several), several)
        dist.barrier()
        all_reduce(mine, "sum", mesh).wait()
        distribute_tensor(several.view(size, 4), mesh, [Shard(0)]).full_tensor()
    net: Any = fully_shard(nn.Linear(8, 8), mesh=mesh)
    with CommDebugMode() as step:  # type: ignore[no-untyped-call]
        net(torch.ones(2, 8)).sum().backward()
    return _names(calls), _names(step), step.generate_comm_debug_tracing_table(noise_level=2)


def _names(mode: CommDebugMode) -> Counts:
    return {str(name): count for name, count in mode.get_comm_counts().items()}


def test_counts_are_those_over_gloo(tmp_path: Path) -> None:
    theirs = over("gloo", counted, 2, tmp_path)
    for ours, gloos in zip(over("dlcp", counted, 2, tmp_path), theirs, strict=True):
        assert ours[:2] == gloos[:2]
        assert "c10d.allreduce_" in ours[0] and ours[0]["c10d.allreduce_"] >= 1
        assert "c10d._allgather_base_" in ours[2]
