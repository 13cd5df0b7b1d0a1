"""CPU time of a reduce-scatter and an all-gather, beside that of an all-reduce, on one daemon:

    torchrun --nproc-per-node 2 -m tests.client.halves_cost 64

It prints ms per operation of 64 MB, of the ranks' processes and the daemon's, in the arena (each
half from or to this rank's part of the larger tensor) and in ordinary tensors, of which the
all-gather is from this rank's part, as FSDP2's. Nothing here is a test.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from dlcp_client import Session, connect
from dlcp_lab.bench.meter import cpu_seconds

ROUNDS, WARMUP, EACH = 6, 2, 10  # EACH: operations between two measurements


def main() -> None:
    """Measure by turns, and print."""
    size = int(sys.argv[1]) << 20
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with connect(arena_bytes=6 * size) as session:
        ways = calls(session, size // 4)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(WARMUP + ROUNDS):
            for name, call in ways.items():
                cost = cpu_of(session, call)
                if turn >= WARMUP:
                    found[name].append(cost)
        if not session.rank:
            show({name: median(costs) for name, costs in found.items()})
        dist.barrier()
    dist.destroy_process_group()


def calls(session: Session, count: int) -> dict[str, Callable[[], None]]:
    """The operations, by name."""
    world, part = session.world, count // session.world_size
    mine = slice(session.rank * part, (session.rank + 1) * part)
    inside, outside, shard = session.zeros(count), torch.zeros(count), torch.zeros(part)

    def all_reduce(whole: Tensor) -> None:
        world.all_reduce(whole).wait()

    def scatter(whole: Tensor, into: Tensor) -> None:
        world.reduce_scatter(into, whole).wait()

    def gather(whole: Tensor) -> None:
        world.all_gather(whole, whole[mine]).wait()

    return {
        "all_reduce": lambda: all_reduce(inside),
        "reduce_scatter": lambda: scatter(inside, inside[mine]),
        "all_gather": lambda: gather(inside),
        "all_reduce, ordinary": lambda: all_reduce(outside),
        "reduce_scatter, ordinary": lambda: scatter(outside, shard),
        "all_gather, ordinary": lambda: gather(outside),
    }


def cpu_of(session: Session, call: Callable[[], None]) -> float:
    """CPU ms of one call, of all ranks and their daemon."""
    dist.barrier()
    before = cpu_of_both(session)
    for _ in range(EACH):
        call()
    dist.barrier()
    spent = torch.tensor([cpu_of_both(session) - before])
    dist.all_reduce(spent)
    return float(spent) / EACH * 1e3


def cpu_of_both(session: Session) -> float:
    """Of this process, and of the daemon on the rank that started it (see cpu_seconds)."""
    spent = time.process_time()
    if session.daemon_pid is not None:
        daemon = psutil.Process(session.daemon_pid)
        for process in (daemon, *daemon.children(recursive=True)):
            spent += cpu_seconds(process.pid)
    return spent


def show(costs: dict[str, float]) -> None:
    """A line per operation, then the ratios."""
    lines = [f"{name:24}  {cost:6.1f} ms" for name, cost in costs.items()]
    for kind in ("", ", ordinary"):
        halves = costs[f"reduce_scatter{kind}"] + costs[f"all_gather{kind}"]
        lines.append(f"both halves / all_reduce{kind}: {halves / costs[f'all_reduce{kind}']:.2f}")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
