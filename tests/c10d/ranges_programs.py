"""What ranks do under a profiler, in every mode; each program returns the ranges that it showed."""

import json
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from io import StringIO
from operator import itemgetter
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from dlcp_client import bounded, connect, cross_step, ddp, fsdp, gossip
from dlcp_client.ranges import PREFIX, Ranges
from tests.c10d import programs

Row = tuple[str, dict[str, Any]]
COUNT: Final = 24  # elements
WIDTH: Final = 600  # a layer has more than 1 MiB: it may be bounded


@contextmanager
def profiled(rows: list[Row]) -> Iterator[None]:
    """Adds what the exported file shows of inside, by name and facts, as they began."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        yield
    with NamedTemporaryFile(suffix=".json") as file:
        found.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    shown = [event for event in events if event.get("name", "").startswith(PREFIX)]
    rows += [(e["name"], e["args"]) for e in sorted(shown, key=itemgetter("ts"))]


def collectives(rank: int, size: int) -> list[Row]:
    """Each form once, and each wait."""
    rows: list[Row] = []
    mine, several = torch.ones(COUNT), torch.ones(COUNT * size)
    parts = list(several.view(size, COUNT).unbind())
    empty = [torch.empty(COUNT) for _ in range(size)]
    with profiled(rows):
        dist.all_reduce(mine.double())
        work = dist.all_reduce(mine.to(torch.int32), async_op=True)
        assert work is not None
        work.wait()
        dist.reduce(mine, 0)
        dist.broadcast(mine, 0)
        dist.all_gather(empty, mine)
        dist.all_gather_single(several, mine)
        dist.gather(mine, empty if rank == 0 else None)
        dist.scatter(mine, parts if rank == 0 else None)
        dist.reduce_scatter(torch.empty(COUNT), parts)
        dist.reduce_scatter_single(torch.empty(COUNT), several)
        dist.all_to_all(empty, parts)
        dist.all_to_all_single(torch.empty_like(several), several)
        if rank == 0:
            dist.send(mine.bfloat16(), 1)
        else:
            dist.recv(torch.empty(COUNT, dtype=torch.bfloat16), 0)
        dist.barrier()
    return rows


def polled() -> list[Row]:
    """An operation that has ended before its Future is asked for."""
    rows: list[Row] = []
    with profiled(rows):
        work = dist.all_reduce(torch.ones(COUNT), async_op=True)
        assert work is not None
        while not work.is_completed():
            time.sleep(0.001)
        work.get_future().wait()
    return rows


def compiled(rank: int, size: int) -> list[Row]:
    """Of code that is one graph."""
    rows: list[Row] = []
    programs.compiled(rank, size)  # compiles
    with profiled(rows):
        programs.compiled(rank, size)
    return rows


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 2))


def step(model: nn.Module, sgd: torch.optim.Optimizer | None = None) -> None:
    model(torch.ones(2, WIDTH)).sum().backward()
    if sgd is not None:
        sgd.step()
        sgd.zero_grad()


def after(steps: int, model: nn.Module) -> list[Row]:
    """What one more step shows."""
    rows: list[Row] = []
    for _ in range(steps):
        step(model)
    with profiled(rows):
        step(model)
    return rows


def unhooked() -> list[Row]:
    """DDP as it is, over the backend."""
    return after(3, DistributedDataParallel(net()))


def hook(session: Any) -> list[Row]:
    model = DistributedDataParallel(net())
    handle = ddp.register(model, bounded(0.01), session=session, warmup_steps=2)
    rows = after(3, model)
    handle.close()
    return rows


def crossing(session: Any) -> list[Row]:
    rows: list[Row] = []
    model = DistributedDataParallel(net())
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    handle = cross_step.register(model, sgd, session=session)
    step(model, sgd)
    with profiled(rows):
        step(model, sgd)
        handle.synchronize()
    handle.close()
    return rows


def sharded() -> list[Row]:
    model = net()
    for block in (*model.children(), model):
        fully_shard(block)
    fsdp.register(model)
    return after(1, model)


def gossiping(session: Any) -> list[Row]:
    rows: list[Row] = []
    model = net()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    handle = gossip.register(model, sgd, session=session)
    step(model, sgd)
    with profiled(rows):
        step(model, sgd)
    handle.close()
    return rows


def unprofiled(rank: int, size: int) -> list[str]:
    """Which methods a training and a collective call where nobody profiles: `on` alone."""
    calls: list[str] = []
    for name in ("operation", "collective", "submission", "wait", "_outermost"):
        setattr(Ranges, name, lambda *_, name=name: calls.append(name))
    dist.all_reduce(torch.ones(COUNT))
    model = DistributedDataParallel(net())
    handle = ddp.register(model)
    step(model)
    handle.close()
    return calls


def run(text: str) -> list[str]:
    """A block of a page, in a job; the lines that it prints."""
    printed = StringIO()
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(printed):
        exec(compile(text, "page", "exec"), {"dist": dist, "torch": torch})  # noqa: S102  # ours
    return printed.getvalue().splitlines()


def everything(rank: int, size: int, page: str) -> dict[str, Any]:
    """By mode; and what the block of a page prints. One launch, one session beside that of the
    process group."""
    session = connect(timeout=60.0)
    modes = {
        "page": run(page),
        "c10d": collectives(rank, size),
        "compiled": compiled(rank, size),
        "polled": polled(),
        "unhooked": unhooked(),
        "ddp": hook(session),
        "cross_step": crossing(session),
        "fsdp": sharded(),
        "gossip": gossiping(session),
    }
    session.close()
    return modes
