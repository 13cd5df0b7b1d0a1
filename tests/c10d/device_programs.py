"""What one rank does with tensors of a device, "cpu" or "cuda". Results are numpy arrays by name.

The tensors come from a generator of the CPU, so that both devices start from the same bits.
"""

import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C._profiler import _ExperimentalConfig
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from dlcp_client import bounded, cross_step, ddp, exact, fsdp
from dlcp_client.ranges import PREFIX, RANGES

Arrays = dict[str, np.ndarray[Any, Any]]
_cuda: Final[Any] = torch.cuda  # parts of it have no types
COUNT: Final = 5 << 18  # elements: two pieces of a copy
DTYPES: Final = (torch.float32, torch.bfloat16, torch.int64)
STEPS: Final = 4
WIDTH: Final = 600  # a layer has more than 1 MiB: it may be bounded


def place(name: str, rank: int) -> torch.device:
    """The device of this rank; ranks share a GPU where there are fewer."""
    if name == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A copy, of numpy's float32 for bfloat16."""
    copy = tensor.detach().cpu()
    return (copy.float() if copy.dtype == torch.bfloat16 else copy).numpy().copy()


def drawn(rank: int, dtype: torch.dtype, device: torch.device, count: int = COUNT) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank + 1)
    return torch.randn(count, generator=generator).mul(8).to(dtype).to(device)


def collectives(rank: int, size: int, name: str) -> Arrays:
    """Each collective, on every dtype."""
    device = place(name, rank)
    found: Arrays = {}
    for dtype in DTYPES:
        mine = drawn(rank, dtype, device)
        whole, part = mine.repeat(size), torch.empty_like(mine)
        parts = list(whole.clone().view(size, -1).unbind())
        dist.all_reduce(total := mine.clone())
        dist.broadcast(shared := mine.clone(), size - 1)
        dist.all_gather_into_tensor(everyone := torch.empty_like(whole), mine)
        dist.reduce_scatter_tensor(part, whole)
        dist.all_to_all_single(turned := torch.empty_like(whole), whole)
        dist.gather(mine, boxes := parts if rank == 0 else None)
        dist.scatter(given := torch.empty_like(mine), boxes)
        sent = dist.isend(mine, (rank + 1) % size)
        dist.recv(came := torch.empty_like(mine), (rank - 1) % size)
        assert sent is not None
        sent.wait()
        results = (total, shared, everyone, part, turned, given, came)
        found |= {f"{dtype} {at}": bits(one) for at, one in enumerate(results)}
    return found


def behind_kernels(rank: int, size: int, name: str) -> None:
    """Long kernels before and after an operation, on the default stream and on another one."""
    device = place(name, rank)
    side = 2048 if device.type == "cuda" else 16
    slow = torch.randn(side, side, device=device)
    for stream in (None, _cuda.Stream(device) if device.type == "cuda" else None):
        with torch.cuda.stream(stream):
            for number in range(10):
                tensor = torch.zeros(COUNT, device=device)
                for _ in range(10):
                    slow = (slow @ slow).clamp(-1, 1)
                tensor.add_(rank + 1)
                work = dist.all_reduce(tensor, async_op=True)
                assert work is not None
                if number % 2:
                    [future] = work.get_future().then(lambda done: done.value()).wait()
                    assert future is tensor or torch.equal(future, tensor)
                work.wait()
                tensor.mul_(2)
                assert bool((tensor == size * (size + 1)).all())


def reused_memory(rank: int, size: int, name: str) -> None:
    """Inputs that the caller drops at once: the caching allocator gives their memory to others."""
    device = place(name, rank)
    for number in range(40):
        output = torch.empty(COUNT * size, device=device)
        work = dist.all_gather_into_tensor(
            output, torch.full((COUNT,), float(number + rank), device=device), async_op=True
        )
        for _ in range(4):
            torch.full((COUNT,), -1.0, device=device)
        assert work is not None
        work.wait()
        for peer, part in enumerate(output.view(size, COUNT)):
            assert bool((part == number + peer).all())


def network() -> nn.Sequential:
    torch.manual_seed(1)
    first, last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(nn.Embedding(32, WIDTH), first, nn.LayerNorm(WIDTH), nn.ReLU(), last)


def step(net: nn.Module, rank: int, number: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(100 * number + rank)
    words = torch.randint(0, 32, (16, 4), generator=generator).to(device)
    targets = torch.randn(16, 4, WIDTH, generator=generator).to(device)
    (net(words) - targets).square().mean().backward()


def steps(net: nn.Module, optimizer: torch.optim.Optimizer, rank: int, device: Any) -> None:
    for number in range(STEPS):
        optimizer.zero_grad()
        step(net, rank, number, device)
        optimizer.step()


def trainings(rank: int, size: int, name: str) -> Arrays:
    """DDP by its group, then by each hook; FSDP2 by its group, then by its hook: the weights."""
    device = place(name, rank)
    found: Arrays = {}
    for way in ("group", "exact", "bounded", "cross_step"):
        net = DistributedDataParallel(network().to(device), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        handle: Any = None
        if way == "cross_step":
            handle = cross_step.register(net, optimizer, exact())
        elif way != "group":
            handle = ddp.register(net, bounded(0.05) if way == "bounded" else exact())
        steps(net, optimizer, rank, device)
        found |= {f"{way} {key}": bits(value) for key, value in net.module.state_dict().items()}
        if handle:
            handle.close()
    for way in ("fsdp", "fsdp exact", "fsdp bounded"):
        net = sharded(size, device)
        if way != "fsdp":
            fsdp.register(net, bounded(0.05) if way == "fsdp bounded" else exact())
        steps(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), rank, device)
        found |= {f"{way} {k}": bits(v.full_tensor()) for k, v in net.state_dict().items()}
    return found


def sharded(size: int, device: torch.device) -> Any:
    net: Any = network().to(device)
    mesh = init_device_mesh(device.type, (size,))
    for part in net:
        if list(part.parameters()):
            fully_shard(part, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def checkpoint(rank: int, size: int, name: str) -> None:
    """Saved at once and in the background, and loaded into a fresh model."""
    device = place(name, rank)
    shared = [tempfile.mkdtemp()] if rank == 0 else [""]
    dist.broadcast_object_list(shared, device=device)
    net = sharded(size, device)
    state, fresh = net.state_dict(), sharded(size, device).state_dict()
    for value in state.values():
        value.to_local().normal_()
    for way in ("save", "async_save"):
        folder = Path(shared[0]) / way
        saved = getattr(state_dict_saver, way)(state, checkpoint_id=folder)
        if way == "async_save":
            saved.result()
        for value in fresh.values():
            value.to_local().zero_()
        state_dict_loader.load(fresh, checkpoint_id=folder)
        assert all(torch.equal(fresh[k].to_local(), v.to_local()) for k, v in state.items())


def shown(rank: int, size: int, name: str) -> list[str]:
    """The ranges of a step of the hook and of an operation of the backend, under a profiler.

    A thread for copies submits operations of a GPU: the profile needs all threads.
    """
    device = place(name, rank)
    net = DistributedDataParallel(network().to(device), bucket_cap_mb=1)
    handle = ddp.register(net, exact())
    step(net, rank, 0, device)
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    every = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=kinds, experimental_config=every) as found:
        step(net, rank, 1, device)
        dist.all_reduce(torch.ones(COUNT, device=device))
    handle.close()
    return [event.name for event in found.events() or [] if event.name.startswith(PREFIX)]


def under_nvtx(rank: int, size: int, name: str) -> bool:
    """As `shown`, for a tool that reads NVTX's ranges. Whether ranges are made."""
    device = place(name, rank)
    net = DistributedDataParallel(network().to(device), bucket_cap_mb=1)
    handle = ddp.register(net, exact())
    step(net, rank, 0, device)
    with torch.autograd.profiler.emit_nvtx():  # type: ignore[no-untyped-call]
        on = RANGES.on()
        step(net, rank, 1, device)
        dist.all_reduce(torch.ones(COUNT, device=device))
    handle.close()
    return on
