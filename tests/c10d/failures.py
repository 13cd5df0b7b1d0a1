"""What one rank does where something is wrong. Each program asserts which error it gets."""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.nn.parallel import DistributedDataParallel

from dlcpd.contract.errors import (
    BadOperation,
    BadTensor,
    DeadlineExceeded,
    DlcpError,
    OperationAborted,
    PeerLost,
    SessionClosed,
)
from tests.c10d.programs import batch, model

SHORT = timedelta(seconds=1.5)


def opts(root: int = 0, **more: Any) -> Any:
    made = dist.BroadcastOptions()
    made.rootRank = root
    for name, value in more.items():
        setattr(made, name, value)
    return made


def bad_arguments(rank: int, size: int) -> None:
    """Refused on the spot, by one error each; the group goes on."""
    world: Any = dist.group.WORLD
    one, two, every = torch.ones(1), torch.ones(2), torch.ones(size)
    reducing: Any = dist.AllreduceOptions()
    reducing.reduceOp = dist.ReduceOp.BAND
    averaging: Any = dist.AllreduceOptions()
    averaging.reduceOp = dist.ReduceOp.AVG
    wrong: list[tuple[type[DlcpError], str, Callable[[], Any]]] = [
        (BadOperation, "rank 7", lambda: world.broadcast([one], opts(7))),
        (BadOperation, "rank 7", lambda: world.send([one], 7, 0)),
        (BadOperation, "rank -1", lambda: world.recv([one], -1, 0)),
        (BadOperation, "tag -3", lambda: world.send([one], (rank + 1) % size, -3)),
        (BadOperation, "per rank", lambda: world.allgather([[one] * (size + 1)], [one])),
        (BadOperation, "bitwise|not defined", lambda: world.allreduce([one], reducing)),
        (BadOperation, "round", lambda: world.allreduce([one.int()], averaging)),
        (BadOperation, "splits", lambda: world.all_to_all_single(two, two, [2, 1], [1, 1])),
        (BadOperation, "7 rows", lambda: world.all_to_all_single(torch.ones(7), two, [], [])),
        (BadTensor, "match", lambda: world.all_gather_single(one, one)),
        (BadTensor, "match", lambda: world.reduce_scatter_single(one, one)),
        (BadTensor, "match", lambda: world.all_gather_single_coalesced([one] * 2, [one] * 2)),
        (BadTensor, "match", lambda: world.reduce_scatter_single_coalesced([one] * 2, [one] * 2)),
        (BadTensor, "one dtype", lambda: world.alltoall([one] * size, [one, one.int()] * size)),
        (
            BadTensor,
            "invalid tensor type",
            lambda: world.alltoall([one] * size, [two.int()] * size),
        ),
        (BadTensor, "invalid tensor type", lambda: world.alltoall_base(every, every.int(), [], [])),
        (BadTensor, "dense", lambda: world.allreduce([one.to_sparse()])),
        (BadOperation, "invalid root tensor 0", lambda: world.broadcast([], opts())),
        (BadTensor, "meta", lambda: world.allreduce([one.to("meta")])),
        (BadTensor, "float8", lambda: world.allreduce([one.to(torch.float8_e4m3fn)])),
    ]
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text) as caught:
            call()
        assert isinstance(caught.value, dist.DistBackendError)  # as PyTorch's callers expect
    dist.all_reduce(one)
    assert one.item() == size


def absent_rank(rank: int, size: int) -> None:
    """Rank 1 does not take part: the others get a named error when the timeout is over."""
    group = dist.new_group(timeout=SHORT)
    assert group is not None
    if rank == 1:
        time.sleep(2 * SHORT.total_seconds())  # alive, and elsewhere
        return
    began = time.monotonic()
    work: Any = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    assert not work.is_completed()
    with pytest.raises(RuntimeError):
        work.wait(timedelta(seconds=0.2))
    with pytest.raises(RuntimeError, match="timeout=") as caught:
        work.wait()
    assert isinstance(caught.value, DeadlineExceeded | OperationAborted)  # told by rank 0
    assert time.monotonic() - began < 10 * SHORT.total_seconds()
    with pytest.raises(RuntimeError):
        work.get_future().wait()


def absent_from_monitored_barrier(rank: int, size: int) -> None:
    """Rank 0 names the rank that did not arrive."""
    world: Any = dist.group.WORLD
    if rank == size - 1:
        time.sleep(2 * SHORT.total_seconds())
        return
    expected = f"rank {size - 1} did not arrive" if rank == 0 else "rank 0 did not release rank"
    with pytest.raises(PeerLost, match=expected):
        world.monitored_barrier(SHORT, wait_all_ranks=True)


def destroyed(rank: int, size: int) -> None:
    """An operation on a destroyed group raises; so does one that was open. Others go on."""
    group = dist.new_group()
    assert group is not None
    dist.all_reduce(torch.ones(1), group=group)
    open_work = group.recv([torch.ones(1)], (rank + 1) % size, 5)
    dist.destroy_process_group(group)
    with pytest.raises(SessionClosed, match="was destroyed"):
        group.allreduce([torch.ones(1)])
    with pytest.raises(DlcpError):
        open_work.wait()
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == size
    dist.barrier()


def aborted(rank: int, size: int) -> None:
    """abort() ends an operation for which another thread waits, and leaves other groups alone."""
    group: Any = dist.new_group()
    open_work = group.recv([torch.ones(1)], (rank + 1) % size, 5)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            open_work.wait()
        except RuntimeError as exc:
            caught.append(exc)

    waiter = threading.Thread(target=wait)
    waiter.start()
    group.abort()
    waiter.join(10.0)
    assert not waiter.is_alive()
    assert isinstance(caught[0], DlcpError)
    with pytest.raises(SessionClosed):
        group.allreduce([torch.ones(1)])
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == size


def dying_under_ddp(rank: int, size: int) -> str:
    """Rank 1 dies between steps. Training raises on the others: no crash, no hang."""
    net = DistributedDataParallel(model())
    net(batch(rank, 0)).sum().backward()
    dist.barrier()
    if rank == 1:
        os._exit(1)
    for step in range(3):  # what was sent before the death may complete the first ones
        try:
            net(batch(rank, step)).sum().backward()
        except RuntimeError as exc:
            return str(exc)
    return ""


def joined_again(rank: int, size: int) -> None:
    """A job after a job in one process."""
    from tests.c10d.worlds import TIMEOUT  # noqa: PLC0415  # it preloads this module

    name, store = dist.get_backend(), dist.distributed_c10d._get_default_store()  # noqa: SLF001
    dist.destroy_process_group()
    store = PrefixStore("again", store)
    dist.init_process_group(name, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == size


ALL = {
    program.__name__: program
    for program in (
        bad_arguments,
        absent_rank,
        absent_from_monitored_barrier,
        destroyed,
        aborted,
        joined_again,
    )
}
