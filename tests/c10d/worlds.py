"""Worlds of real processes: the same program on every rank, over Gloo and over dlcp."""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any, Final

import torch
import torch.distributed as dist

import dlcp_client
from tests.c10d.gloo_transport import GlooTransport
from tests.forking import CONTEXT
from tests.standing import STANDING

LIMIT: Final = 90.0  # seconds for a world to end; a program takes a few on a free machine
TIMEOUT: Final = timedelta(seconds=30)  # of process groups, unless a program sets another

Program = Callable[..., Any]
_kept: list[Any] = []


@contextmanager
def job(backend: str, store: str, rank: int, size: int, **options: Any) -> Iterator[None]:
    """A process group over `backend`, as PyTorch names it; "stand-in": dlcp over Gloo."""
    os.environ["MASTER_ADDR"] = "localhost"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    connect = GlooTransport if backend == "stand-in" else dlcp_client.c10d.connect_session
    dlcp_client.c10d.register(connect)
    name = "dlcp" if backend == "stand-in" else backend
    given = {"timeout": TIMEOUT} | options
    dist.init_process_group(name, f"file://{store}", rank=rank, world_size=size, **given)
    # Gloo's threads may hold the last reference to a group, whose end would then join themselves.
    _kept.append(dist.group.WORLD)
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_each_rank(
    program: Program,
    size: int,
    *arguments: Any,
    dying: frozenset[int] = frozenset(),
    limit: float = LIMIT,
) -> list[Any]:
    """program(rank, size, *arguments) in a process per rank; what they return, by rank.

    `dying`: ranks that are to end without returning; `limit`: seconds for all of it.

    Raises: AssertionError with the ranks' tracebacks, or naming those that did not end.
    """
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
    ranks = [
        CONTEXT.Process(target=_rank, args=(pipe[1], program, rank, size, *arguments))
        for rank, pipe in enumerate(pipes)
    ]
    try:
        for process in ranks:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        results = _results([ours for ours, _ in pipes], monotonic() + limit)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    failed = {rank: said for rank, (fine, said) in enumerate(results) if fine == (rank in dying)}
    assert not failed, "\n".join(f"rank {rank}: {said}" for rank, said in failed.items())
    return [value for _, value in results]


def over(
    backend: str,
    program: Program,
    size: int,
    folder: Path,
    *arguments: Any,
    dying: frozenset[int] = frozenset(),
    environment: dict[str, str] | None = None,
) -> list[Any]:
    """program(rank, size, *arguments) in a job over one backend; what the ranks return.

    `environment`: variables of all ranks, which then have private daemons; by default each rank of
    dlcp uses the daemon of a standing host.
    """
    environments = [environment or {}] * size
    if "dlcp" in backend and environment is None:
        environments = [{"DLCPD_SOCKET": socket} for socket in STANDING.sockets(size)]
    place = (backend, str(folder / f"store-{backend.replace(':', '-')}"), environments)
    return on_each_rank(_in_job, size, place, program, *arguments, dying=dying)


def in_turn(backend: str, programs: dict[str, Program], size: int, folder: Path) -> str:
    """All programs in one job, in their order: a job costs more than most of them.

    Returns: what failed, "" if nothing did.
    """
    try:
        over(backend, _in_turn, size, folder, programs)
    except AssertionError as error:
        return str(error)
    return ""


def _in_turn(rank: int, size: int, programs: dict[str, Program]) -> None:
    for program in programs.values():
        program(rank, size)


def _in_job(
    rank: int,
    size: int,
    place: tuple[str, str, list[dict[str, str]]],
    program: Program,
    *arguments: Any,
) -> Any:
    backend, store, environments = place
    os.environ.update(environments[rank])
    with job(backend, store, rank, size):
        return program(rank, size, *arguments)


def _rank(pipe: Connection, program: Program, rank: int, size: int, *arguments: Any) -> None:
    try:
        pipe.send((True, program(rank, size, *arguments)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()


def _results(pipes: list[Any], deadline: float) -> list[tuple[bool, Any]]:
    results: dict[int, tuple[bool, Any]] = {}
    while len(results) < len(pipes):
        missing = [pipe for rank, pipe in enumerate(pipes) if rank not in results]
        ready = wait(missing, max(0.0, deadline - monotonic()))
        if not ready:
            break
        for pipe in ready:
            results[pipes.index(pipe)] = _received(pipe)
    late = (False, "did not end within the limit")
    return [results.get(rank, late) for rank in range(len(pipes))]


def _received(pipe: Any) -> tuple[bool, Any]:
    try:
        fine, value = pipe.recv()
    except EOFError:
        return False, "ended and printed nothing"
    return fine, value
