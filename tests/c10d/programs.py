"""What one rank does with PyTorch's own parallelism. Nothing here knows the backend.

Each program runs in a job, and returns numpy arrays by name: results that must equal Gloo's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS = 3
WIDTH = 12  # divides by 2, 3 and 4 ranks


def model() -> nn.Sequential:
    """Two blocks, on all ranks with the same weights."""
    torch.manual_seed(1)
    block = [nn.Linear(WIDTH, 24), nn.Tanh(), nn.Linear(24, WIDTH)]
    return nn.Sequential(nn.Sequential(*block), nn.Sequential(nn.LayerNorm(WIDTH), nn.Tanh()))


def batch(rank: int, step: int, rows: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, WIDTH, generator=generator)


def whole(tensor: torch.Tensor) -> Any:
    """The full value of a parameter, gathered where it is sharded."""
    value = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return value.detach().numpy().copy()


def parameters(net: nn.Module) -> Arrays:
    return {name: whole(value) for name, value in net.named_parameters()}


def train(net: nn.Module, rank: int, optimizer: torch.optim.Optimizer | None = None) -> Arrays:
    """A few steps on data that each rank draws for itself; the weights after them."""
    steps = optimizer or torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(STEPS):
        steps.zero_grad()
        net(batch(rank, step)).square().mean().backward()
        steps.step()
    return parameters(net)


# --- data parallel ------------------------------------------------------------------------


def ddp(rank: int, size: int) -> Arrays:
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.0005), rank)


def ddp_static_graph(rank: int, size: int) -> Arrays:
    return train(DistributedDataParallel(model(), static_graph=True), rank)


def ddp_fp16_hook(rank: int, size: int) -> Arrays:
    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(net, rank, torch.optim.SGD(net.parameters(), lr=0.1))  # Adam enlarges rounding


def ddp_powersgd_hook(rank: int, size: int) -> Arrays:
    """Its hook waits for collectives inside callbacks of other collectives."""
    net = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(net, rank)


def join(rank: int, size: int) -> Arrays:
    """Uneven inputs: ranks that are through shadow the collectives of the others."""
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Join([net]):
        for step in range(2 + rank):
            optimizer.zero_grad()
            net(batch(rank, step)).square().mean().backward()
            optimizer.step()
    return parameters(net)


def zero(rank: int, size: int) -> Arrays:
    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    return train(net, rank, optimizer)


# --- sharded ------------------------------------------------------------------------------


def sharded(mesh: Any) -> nn.Module:
    net = model()
    for block in net:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def fsdp(rank: int, size: int) -> Arrays:
    return train(sharded(init_device_mesh("cpu", (size,))), rank)


def hsdp(rank: int, size: int) -> Arrays:
    shards = 2 if size == 4 else 1
    names = ("replicate", "shard")
    return train(
        sharded(init_device_mesh("cpu", (size // shards, shards), mesh_dim_names=names)), rank
    )


def checkpoint(rank: int, size: int, folder: str) -> Arrays:
    """Save a trained FSDP2 model, load it into a fresh one."""
    mesh = init_device_mesh("cpu", (size,))
    net = sharded(mesh)
    trained = train(net, rank)
    state_dict_saver.save(get_model_state_dict(net), checkpoint_id=folder)
    fresh = sharded(mesh)
    state = get_model_state_dict(fresh)
    state_dict_loader.load(state, checkpoint_id=folder)
    set_model_state_dict(fresh, state)
    loaded = parameters(fresh)
    assert all(np.array_equal(trained[name], loaded[name]) for name in trained)
    return loaded


# --- tensors and modules over a mesh ------------------------------------------------------


def dtensor(rank: int, size: int) -> Arrays:
    """Distribute, compute on, and redistribute tensors, evenly and unevenly sharded."""
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(2)
    left, right = torch.randn(7, WIDTH), torch.randn(WIDTH, 5)
    rows = distribute_tensor(left, mesh, [Shard(0)])
    columns = distribute_tensor(left, mesh, [Shard(1)])
    inner = distribute_tensor(right, mesh, [Shard(0)])
    product: Any = torch.matmul(columns, inner)  # a sum that is still owed, by rank
    return {
        "rows": whole(rows),
        "product": whole(product),
        "rows times": whole(torch.matmul(rows, distribute_tensor(right, mesh, [Replicate()]))),
        "scattered": whole(product.redistribute(mesh, [Shard(0)])),
        "turned": whole(rows.redistribute(mesh, [Shard(1)])),
        "mine": rows.to_local().numpy().copy(),
    }


def tensor_parallel(rank: int, size: int) -> Arrays:
    mesh = init_device_mesh("cpu", (size,))
    net = parallelize_module(model()[0], mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, 0)  # all ranks see the same data


def pipeline(rank: int, size: int) -> Arrays:
    """GPipe: one stage per rank, microbatches sent from stage to stage and back."""
    torch.manual_seed(10 + rank)
    stage_module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    stage = PipelineStage(stage_module, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.MSELoss())
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(batch(0, 0, rows=8))
    elif rank == size - 1:
        schedule.step(target=batch(0, 1, rows=8), losses=losses)
    else:
        schedule.step()
    gradients = {
        name: whole(p.grad) for name, p in stage_module.named_parameters() if p.grad is not None
    }
    assert gradients
    return gradients | {"losses": np.array([float(loss) for loss in losses])}


# --- compiled, and by objects -------------------------------------------------------------


def compiled(rank: int, size: int) -> Arrays:
    """Functional collectives inside a compiled function."""
    import torch.distributed._functional_collectives as functional  # noqa: PLC0415

    group = dist.group.WORLD
    assert group is not None

    def step(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = functional.all_reduce(x * 2, "sum", group) + 1
        parts = functional.all_gather_tensor(x, 0, group) * 3
        mine = functional.reduce_scatter_tensor(parts, "sum", 0, group)
        turned = functional.all_to_all_single(parts, None, None, group)
        return total, parts, mine, turned

    names = ("total", "parts", "mine", "turned")
    results = torch.compile(step, backend="aot_eager", fullgraph=True)(batch(rank, 0))
    return {name: whole(value) for name, value in zip(names, results, strict=True)}


def objects(rank: int, size: int) -> Any:
    """Object collectives, which gather sizes first."""
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * (10 * rank)})
    shared = [f"from {rank}"]
    dist.broadcast_object_list(shared, src=size - 1)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    gathered: list[Any] | None = [None] * size if rank == 1 else None
    dist.gather_object(rank * 11, gathered, dst=1)
    return everyone, shared, mine, gathered


ALL: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        ddp,
        ddp_static_graph,
        ddp_fp16_hook,
        ddp_powersgd_hook,
        join,
        zero,
        fsdp,
        hsdp,
        dtensor,
        tensor_parallel,
        pipeline,
        compiled,
    )
}
