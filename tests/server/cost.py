"""What a step costs, in CPU seconds of all processes of a job: two ranks, each with a daemon.

    python -m tests.server.cost

A row for each model: the optimizer alone; an all-reduce by `ddp.register`; one named server with
its daemon; an embedded server. Median, and least and most, of blocks of steps.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import ddp, ps
from tests.server.kit import Process

RANKS: Final = 2
WARM: Final = 12  # steps
BLOCKS: Final = 5
TIMEOUT: Final = 300.0  # seconds; cores are shared
MODELS: Final = {"8 k": (2, 64, 40), "10 M": (10, 1000, 4)}  # layers, width, steps of a block
SYSTEMS: Final = ("optimizer alone", "ddp", "named", "embedded")
Step = Callable[[], object]


def main() -> None:
    """Start the ranks, and end with them."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "DLCPD_SHARE": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.server.cost", folder]
        ranks = [subprocess.Popen([*command, str(rank)], env=environ) for rank in range(RANKS)]
        sys.exit(max(abs(rank.wait()) for rank in ranks))


def rank_of(folder: Path, rank: int) -> None:
    """One rank: all systems, one after the other."""
    torch.set_num_threads(1)
    store = FileStore(str(folder / "gloo"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    for name, (layers, width, steps) in MODELS.items():
        for system in SYSTEMS:
            place = folder / f"{width}-{system}"
            with training(system, place, layers, width, rank) as step:
                found = [spent(step, steps) for _ in range(BLOCKS)]
            if rank == 0:
                median, least, most = (1e3 * f(found) for f in (statistics.median, min, max))
                said = f"{name} {system}: {median:.1f} ms of CPU ({least:.1f}..{most:.1f})"
                sys.stdout.write(f"{said}\n")
                sys.stdout.flush()
    dist.destroy_process_group()


def spent(step: Step, steps: int) -> float:
    """CPU seconds of a step, of the whole job."""
    dist.barrier()
    before = cpu()
    dist.barrier()
    for _ in range(steps):
        step()
    dist.barrier()
    after = cpu()
    dist.barrier()
    return (after - before) / steps


def cpu() -> float:
    """Of the ranks and all that they have started."""
    total = 0.0
    for process in psutil.Process(os.getppid()).children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def training(system: str, place: Path, layers: int, width: int, rank: int) -> Iterator[Step]:
    """A step of a training that is warm."""
    model: nn.Module = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    if system == "ddp":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    sample = torch.ones(1, width)

    def step() -> None:
        optimizer.zero_grad()
        model(sample).sum().backward()
        optimizer.step()

    server = None
    if system == "named" and rank == 0:
        place.mkdir()
        server = Process(place).ready()
    dist.barrier()
    handle: ddp.DDPRegistration | ps.PSRegistration | None = None
    if isinstance(model, DistributedDataParallel):
        handle = ddp.register(model, timeout=TIMEOUT)
    elif system == "named":
        handle = ps.register(
            model,
            optimizer,
            server="demo",
            store=place / "store",
            rank=rank,
            world_size=RANKS,
            timeout=TIMEOUT,
        )
    elif system == "embedded":
        handle = ps.register(model, optimizer, timeout=TIMEOUT)
    for _ in range(WARM):
        step()
    yield step
    dist.barrier()
    if handle is not None:
        handle.close()
    dist.barrier()
    if server is not None:
        server.stop()
    time.sleep(1.0)  # processes of this system end


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank_of(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
