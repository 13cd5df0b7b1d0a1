"""One rank of `bench collectives`: the same calls of torch.distributed over dlcpd and over Gloo."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

import dlcp_client  # noqa: F401  # registers the backend "dlcp"
from dlcp_lab.bench.collectives import HALVES
from dlcp_lab.bench.meter import cpu_seconds, processes
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo

BACKENDS: Final = {"dlcpd": "dlcp", "gloo": "gloo"}
ROOT: Final = 0
LARGEST: Final = 8  # largest integer sent: every sum is exact in float32


@dataclass(frozen=True, slots=True)
class CollectiveProblem:
    """The tensors of one call; `parts[r]` is the contribution of rank r, all of one length."""

    rank: int
    parts: list[torch.Tensor]

    @property
    def mine(self) -> torch.Tensor:
        return self.parts[self.rank]

    @property
    def ranks(self) -> int:
        return len(self.parts)

    def shard(self, source: int, place: int) -> torch.Tensor:
        """Part `place` of the contribution of rank `source`."""
        return self.parts[source].chunk(self.ranks)[place]

    @property
    def before(self) -> int:
        return (self.rank - 1) % self.ranks


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """A collective. `start` makes the result tensor, `call` writes to it, and `expected` gives its
    content afterwards: None if this rank receives nothing."""

    start: Callable[[CollectiveProblem], torch.Tensor]
    call: Callable[[CollectiveProblem, torch.Tensor, Any], object]
    expected: Callable[[CollectiveProblem], torch.Tensor | None]


def _at_root(
    value: Callable[[CollectiveProblem], torch.Tensor],
) -> Callable[[CollectiveProblem], torch.Tensor | None]:
    return lambda problem: value(problem) if problem.rank == ROOT else None


def _sum(problem: CollectiveProblem) -> torch.Tensor:
    return torch.stack(problem.parts).sum(0)


def _first_shards(problem: CollectiveProblem) -> torch.Tensor:
    return torch.cat([problem.shard(source, 0) for source in range(problem.ranks)])


def _like_mine(problem: CollectiveProblem) -> torch.Tensor:
    return torch.empty_like(problem.mine)


def _like_shard(problem: CollectiveProblem) -> torch.Tensor:
    return torch.empty_like(problem.shard(0, 0))


def _copy(problem: CollectiveProblem) -> torch.Tensor:
    return problem.mine.clone()


def _gather(problem: CollectiveProblem, result: torch.Tensor, group: Any) -> None:
    parts = list(result.chunk(problem.ranks)) if problem.rank == ROOT else None
    dist.gather(problem.shard(problem.rank, 0), parts, ROOT, group=group)


def _scatter(problem: CollectiveProblem, result: torch.Tensor, group: Any) -> None:
    parts = list(problem.mine.chunk(problem.ranks)) if problem.rank == ROOT else None
    dist.scatter(result, parts, ROOT, group=group)


def _around(problem: CollectiveProblem, result: torch.Tensor, group: Any) -> None:
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, problem.mine, (problem.rank + 1) % problem.ranks, group),
            dist.P2POp(dist.irecv, result, problem.before, group),
        ]
    )
    for work in works:
        work.wait()


def _scatter_and_gather(problem: CollectiveProblem, result: torch.Tensor, group: Any) -> None:
    mine = result.chunk(problem.ranks)[problem.rank]
    dist.reduce_scatter_tensor(mine, problem.mine, group=group)
    dist.all_gather_into_tensor(result, mine, group=group)


CASES: Final = {
    "all_reduce": CollectiveCase(
        _copy, lambda _, result, group: dist.all_reduce(result, group=group), _sum
    ),
    "reduce_scatter": CollectiveCase(
        _like_shard,
        lambda p, result, group: dist.reduce_scatter_tensor(result, p.mine, group=group),
        lambda p: _sum(p).chunk(p.ranks)[p.rank],
    ),
    "all_gather": CollectiveCase(
        _like_mine,
        lambda p, result, group: dist.all_gather_into_tensor(
            result, p.shard(p.rank, 0), group=group
        ),
        _first_shards,
    ),
    HALVES: CollectiveCase(_like_mine, _scatter_and_gather, _sum),
    "broadcast": CollectiveCase(
        _copy,
        lambda _, result, group: dist.broadcast(result, ROOT, group=group),
        lambda p: p.parts[ROOT],
    ),
    "reduce": CollectiveCase(
        _copy, lambda _, result, group: dist.reduce(result, ROOT, group=group), _at_root(_sum)
    ),
    "gather": CollectiveCase(_like_mine, _gather, _at_root(_first_shards)),
    "scatter": CollectiveCase(_like_shard, _scatter, lambda p: p.shard(ROOT, p.rank)),
    "all_to_all": CollectiveCase(
        _like_mine,
        lambda p, result, group: dist.all_to_all_single(result, p.mine, group=group),
        lambda p: torch.cat([p.shard(source, p.rank) for source in range(p.ranks)]),
    ),
    "send_receive": CollectiveCase(_like_mine, _around, lambda p: p.parts[p.before]),
    "barrier": CollectiveCase(
        _like_shard, lambda _p, _r, group: dist.barrier(group=group), lambda _: None
    ),
}


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Per collective and size: {transport: {"times": seconds, "wrong": elements, "cpu": seconds per
    call of this process and its daemon's}}."""
    join_gloo(conductor)
    groups = {name: dist.new_group(backend=backend) for name, backend in BACKENDS.items()}
    try:
        return [
            _measure(conductor, groups, arguments, name, size) for name, size in arguments["calls"]
        ]
    finally:
        dist.destroy_process_group()


def _measure(
    conductor: Conductor, groups: dict[str, Any], arguments: dict[str, Any], name: str, size: int
) -> dict[str, Any]:
    """Both transports alternate in random order, so that neither always has warm caches."""
    conductor.progress(f"{name} {size} B: {arguments['warmup']} + {arguments['repeat']} rounds")
    case = CASES[name]
    problem = _problem(conductor, size, arguments["seed"])
    expected = case.expected(problem)
    order = random.Random(arguments["seed"] ^ size)  # equal on all ranks
    times: dict[str, list[float]] = {transport: [] for transport in groups}
    wrong, cpu = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0.0)
    measured = list(processes(conductor.daemon).values())
    for number in range(arguments["warmup"] + arguments["repeat"]):
        for transport in order.sample(list(groups), len(groups)):
            result = case.start(problem)
            before = sum(map(cpu_seconds, measured))
            conductor.barrier()
            begin = time.perf_counter()
            case.call(problem, result, groups[transport])
            times[transport].append(time.perf_counter() - begin)
            conductor.barrier()  # the daemon works for this rank until all have ended
            if number >= arguments["warmup"]:
                cpu[transport] += sum(map(cpu_seconds, measured)) - before
            if expected is not None:
                wrong[transport] += int((result != expected).sum())
    return {
        transport: {
            "times": samples[arguments["warmup"] :],
            "wrong": wrong[transport],
            "cpu": cpu[transport] / arguments["repeat"],
        }
        for transport, samples in times.items()
    }


def _problem(conductor: Conductor, size: int, seed: int) -> CollectiveProblem:
    """Small integers in float32; the length of a part is a multiple of the world size."""
    ranks = conductor.world_size
    count = max(size // 4 // ranks, 1) * ranks
    draw = torch.Generator().manual_seed(seed)
    parts = [
        torch.randint(-LARGEST, LARGEST + 1, (count,), generator=draw).float() for _ in range(ranks)
    ]
    return CollectiveProblem(conductor.rank, parts)
