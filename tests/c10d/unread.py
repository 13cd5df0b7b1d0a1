"""What one rank does to try works that nobody waits for, and calls whose lists do not fit."""

import time

import pytest
import torch
import torch.distributed as dist

from dlcpd.contract.errors import BadOperation, BadTensor

MANY = 1000  # operations at once; as many as PyTorch's own tests of Gloo begin


def left_alone(rank: int, size: int) -> None:
    """A barrier ends the collectives before it, but no message, of which the half may follow it."""
    tensors = [torch.full((64, 64), float(i)) for i in range(16)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.broadcast(columns := torch.full((4, 4), float(rank))[:, 1], 1, async_op=True)
    received = torch.zeros(3)
    message = dist.irecv(received, (rank - 1) % size)
    dist.barrier()
    for value, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full((64, 64), float(value * size)))
    assert columns.tolist() == [1.0] * 4
    dist.send(torch.full((3,), float(rank)), (rank + 1) % size)
    message.wait()  # type: ignore[union-attr]
    assert received.tolist() == [float((rank - 1) % size)] * 3


def asked_for(rank: int, size: int) -> None:
    """A work that says that it is completed has put its results in their place."""
    columns = torch.ones(4, 4)[:, 1]
    work = dist.all_reduce(columns, async_op=True)
    until = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < until
        time.sleep(0.001)
    assert columns.tolist() == [float(size)] * 4
    dist.barrier()


def many(rank: int, size: int) -> None:
    """Far more at once than a session takes."""
    tensors = [torch.tensor([i + rank]) for i in range(MANY)]
    futures = [dist.all_reduce(each, async_op=True).get_future() for each in tensors]
    for i, future in enumerate(futures):
        assert future.wait()[0].item() == i * size + size * (size - 1) // 2


def misfits(rank: int, size: int) -> None:
    """The root of a gather or scatter gives one list, and nobody gives two tensors for one."""
    group, tensor = dist.group.WORLD, torch.zeros(1)
    assert group is not None
    gather, scatter = dist.GatherOptions(), dist.ScatterOptions()
    gather.rootRank = scatter.rootRank = rank
    row = [tensor] * size
    for outputs in ([], [row, row]):
        with pytest.raises(BadOperation, match="requires a single-element"):
            group.gather(outputs, [tensor], gather)
        with pytest.raises(BadOperation, match="requires a single-element"):
            group.scatter([tensor], outputs, scatter)
    with pytest.raises(BadOperation, match="input tensor list: it has 2"):
        group.gather([row], [tensor, tensor], gather)
    with pytest.raises(BadOperation, match="output tensor list: it has 2"):
        group.scatter([tensor, tensor], [row], scatter)
    with pytest.raises(BadTensor, match="non-empty input tensor list"):
        group.allgather([], [])
    dist.barrier()


ALL = {each.__name__: each for each in (left_alone, asked_for, many, misfits)}
