"""Two ranks of one process, each with a real daemon of its own."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect

WORLD = 2
TIMEOUT = 60.0  # seconds; a loaded machine takes its time to start four processes


def each_rank(call: Callable[[int], Any]) -> list[Any]:
    """call(rank) on a thread for each rank: results, or the errors instead."""
    with ThreadPoolExecutor(WORLD) as pool:
        futures: list[Future[Any]] = [pool.submit(call, rank) for rank in range(WORLD)]
        return [future.exception() or future.result() for future in futures]


def connected(configs: Sequence[Path] = (), **options: Any) -> list[Session]:
    """A session for each rank, whose daemon has the rank's own configuration, if there are."""
    store = HashStore()
    more: dict[str, Any] = {"timeout": TIMEOUT, "arena_bytes": 64 << 20} | options
    own = [{"config": config} for config in configs] or [{}] * WORLD
    sessions = each_rank(lambda rank: connect(store, rank, WORLD, **own[rank] | more))
    for session in sessions:
        if isinstance(session, BaseException):
            raise session
    return sessions


def engine_of(session: Session) -> psutil.Process:
    """The engine of a session's embedded daemon."""
    [engine] = psutil.Process(session.daemon_pid).children()
    return engine


def kill(pid: int | None) -> None:
    """End a process at once. A daemon's engine notices, and could do some more work until then:
    wait for it."""
    assert pid is not None
    engines = psutil.Process(pid).children()
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs(engines, timeout=10)


def reduce_all(sessions: list[Session], *args: Any, **more: Any) -> list[torch.Tensor]:
    """One all-reduce of [rank + 1, ...] on every rank; the results."""
    tensors = [torch.full((1000,), rank + 1.0) for rank in range(WORLD)]
    works = [s.all_reduce(t, *args, **more) for s, t in zip(sessions, tensors, strict=True)]
    for work in works:
        work.wait()
    return tensors
