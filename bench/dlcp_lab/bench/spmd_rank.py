"""One rank of `bench spmd`: the same steps as one divided program, and by torch's own ways."""

import ctypes
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import dlcp_client
from dlcp_client import ddp, fsdp, spmd
from dlcp_client.spmd.coalescing import buckets
from dlcp_lab.bench.meter import Usage, processes
from dlcp_lab.bench.spmd_models import GPT, TENSOR_PARALLEL, Images, images, words
from dlcp_lab.ranks.rank import Conductor

M_TRIM_THRESHOLD: Final = -1  # malloc.h
M_MMAP_THRESHOLD: Final = -3
KEPT: Final = (1 << 31) - 1  # bytes; the largest int
RATE: Final = 1e-3  # of learning
ARENA: Final = 256 << 20  # bytes
BATCH: Final = [("all", None), ("all", None)]
SPACE: Final = [(None, None, None, "all"), (None, None, "all")]


class Setup(NamedTuple):
    """`measured`: whether the costs of plans are measured."""

    layers: int
    backend: str
    measured: bool


@dataclass(frozen=True, slots=True)
class PreparedWay:
    """A model to call with this rank's arguments, what ends it, its collectives in a step, and the
    operations that share the sums of gradients."""

    model: nn.Module
    given: tuple[Tensor, ...]
    close: Callable[[], None] = lambda: None
    collectives: int | None = None
    reductions: int | None = None


def _mine(given: tuple[Tensor, ...], dim: int) -> tuple[Tensor, ...]:
    """This rank's part of a dimension, counted from the end if negative."""
    size, rank = dist.get_world_size(), dist.get_rank()
    return tuple(x.chunk(size, dim)[rank].contiguous() for x in given)


def _divided(
    case: Setup,
    model: nn.Module,
    example: tuple[Tensor, ...],
    given: tuple[Tensor, ...],
    inputs: Any = (),
    **patterns: Any,
) -> PreparedWay:
    mesh = spmd.mesh(all=dist.get_world_size())
    if patterns:
        spmd.annotate(model, mesh, **patterns)
    costs = "measured" if case.measured else None
    parallel = spmd.partition(model, mesh, example=example, inputs=inputs, costs=costs)
    made = parallel._program.partition  # noqa: SLF001  # the plan, which has no public name
    counts = len(made.collectives), len(buckets(made))
    return PreparedWay(parallel, given, collectives=counts[0], reductions=counts[1])


def _tensor_spmd(case: Setup) -> PreparedWay:
    return _divided(case, GPT(case.layers), words(), words(), patterns=TENSOR_PARALLEL)


def _tensor_dtensor(case: Setup) -> PreparedWay:
    model = GPT(case.layers)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    for block in model.blocks:
        parallelize_module(
            block, mesh, {**columns, "o": RowwiseParallel(), "down": RowwiseParallel()}
        )
    return PreparedWay(model, words())


def _data_spmd(case: Setup) -> PreparedWay:
    return _divided(case, GPT(case.layers), words(), _mine(words(), 0), BATCH)


def _data_ddp(case: Setup) -> PreparedWay:
    model = DistributedDataParallel(GPT(case.layers))
    if case.backend == "gloo":
        return PreparedWay(model, _mine(words(), 0))
    handle = ddp.register(model, arena_bytes=ARENA)
    return PreparedWay(model, _mine(words(), 0), handle.close)


def _sharded_spmd(case: Setup) -> PreparedWay:
    model = GPT(case.layers)
    patterns = {name: ("all", *[None] * (x.dim() - 1)) for name, x in model.named_parameters()}
    return _divided(case, model, words(), _mine(words(), 0), BATCH, patterns=patterns, priority=1)


def _sharded_fsdp(case: Setup) -> PreparedWay:
    model = GPT(case.layers)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    if case.backend != "gloo":
        fsdp.register(model)
    return PreparedWay(model, _mine(words(), 0))


def _space_spmd(case: Setup) -> PreparedWay:
    return _divided(case, Images(), images(), _mine(images(), -1), SPACE)


def _space_gather(_case: Setup) -> PreparedWay:
    def around(_number: int, operation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        whole: Tensor = apply(x)
        return operation(whole).chunk(dist.get_world_size(), -1)[dist.get_rank()]

    apply: Callable[[Tensor], Tensor] = _Gathered.apply
    return PreparedWay(DistributedDataParallel(Images(around)), _mine(images(), -1))


def _space_alone(_case: Setup) -> PreparedWay:
    """Each rank does all the work by itself: as many cores are busy as with the other ways, which
    share caches and clocks."""
    return PreparedWay(Images(), images())


class _Gathered(torch.autograd.Function):
    """The whole width, of all ranks; its gradient is a sum over the ranks."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        found = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(found, x.contiguous())
        return torch.cat(found, -1)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        parts = [one.contiguous() for one in gradient.chunk(dist.get_world_size(), -1)]
        made = torch.empty_like(parts[0])
        dist.reduce_scatter(made, parts)
        return made


# By case: the ways; the first is compared with the second.
CASES: Final[dict[str, dict[str, Callable[[Setup], PreparedWay]]]] = {
    "tensor": {"spmd": _tensor_spmd, "dtensor": _tensor_dtensor},
    "data": {"spmd": _data_spmd, "ddp": _data_ddp},
    "sharded": {"spmd": _sharded_spmd, "fsdp2": _sharded_fsdp},
    "space": {"spmd": _space_spmd, "gather": _space_gather, "alone": _space_alone},
}


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The measurements of each block, see `_block`, in a random order."""
    torch.set_num_threads(1)
    _keep_freed_memory()
    dlcp_client.c10d.register()
    order = random.Random(arguments["seed"])  # equal on all ranks
    found: list[dict[str, Any]] = []
    for backend in arguments["backends"]:
        dist.init_process_group(
            backend,
            init_method=f"file://{conductor.store}-{backend}",
            rank=conductor.rank,
            world_size=conductor.world_size,
        )
        try:
            for case in arguments["cases"]:
                found += _case(conductor, case, backend, order, arguments)
        finally:
            dist.destroy_process_group()
    return found


def _keep_freed_memory() -> None:
    """glibc returns large freed tensors to the kernel in some processes and not in others: a step
    of images then had 0 or 35,000 page faults, which took up to 90 ms of CPU."""
    for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        ctypes.CDLL(None).mallopt(option, KEPT)


def _case(
    conductor: Conductor, case: str, backend: str, order: random.Random, arguments: dict[str, Any]
) -> list[dict[str, Any]]:
    """Ways are prepared once: to capture a model takes longer than a block."""
    ways = {}
    for way, prepare in CASES[case].items():
        conductor.progress(f"{case} over {backend}: {way}")
        torch.manual_seed(0)
        ways[way] = prepare(Setup(arguments["layers"], backend, arguments["measured"]))
    optimizers = {way: SGD(one.model.parameters(), RATE) for way, one in ways.items()}
    found = []
    for block in range(arguments["blocks"] + 1):  # the first one is not counted
        for way in order.sample(list(ways), len(ways)):
            one = _block(conductor, ways[way], optimizers[way], arguments["repeat"])
            if block:
                found.append({"case": case, "backend": backend, "way": way, **one})
    conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    for prepared in ways.values():
        prepared.close()
    return found


def _block(
    conductor: Conductor, prepared: PreparedWay, optimizer: SGD, repeat: int
) -> dict[str, Any]:
    """Some steps: seconds of each, of which this rank computes `work`; CPU seconds per step with
    the daemon; bytes that the forward pass saves; the last loss."""
    conductor.barrier("block")
    daemon = [pid for role, pid in processes(conductor.daemon).items() if role != "trainer"]
    before, cpu = _cpu(daemon), time.process_time()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        optimizer.zero_grad()
        prepared.model(*prepared.given).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    work = (time.process_time() - cpu) / repeat
    shared = (_cpu(daemon) - before) / repeat
    with _saved(prepared.model) as count:
        loss = prepared.model(*prepared.given)
    loss.backward()
    return {
        "times": times,
        "work": work,
        "cpu": work + shared,
        "saved": count(),
        "loss": loss.item(),
        "collectives": prepared.collectives,
        "reductions": prepared.reductions,
    }


def _cpu(pids: list[int]) -> float:
    usages = [Usage.of(pid) for pid in pids]
    return sum(usage.user + usage.system for usage in usages)


@contextmanager
def _saved(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Bytes of the tensors that forward passes save meanwhile, but not of parameters."""
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = _local(x).untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return x

    def count() -> int:
        for one in model.parameters():
            sizes.pop(_local(one).untyped_storage().data_ptr(), None)
        return sum(sizes.values())

    with saved_tensors_hooks(pack, lambda x: x):
        yield count


def _local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x
