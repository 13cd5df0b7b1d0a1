"""Programs about lists of tensors that the tests of PyTorch's Gloo backend ask for: each holds over
Gloo too.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

OPTIONS: Final[dict[str, Any]] = {
    "allreduce": dist.AllreduceOptions, "broadcast": dist.BroadcastOptions,
    "gather": dist.GatherOptions, "reduce": dist.ReduceOptions, "scatter": dist.ScatterOptions,
}  # fmt: skip


def options(name: str, **values: Any) -> Any:
    made = OPTIONS[name]()
    for attribute, value in values.items():
        setattr(made, attribute, value)
    return made


def numbers(rank: int, count: int) -> list[torch.Tensor]:
    """One tensor per device of a rank: each value differs from all others."""
    return [torch.tensor([count * rank + i + 1]) for i in range(count)]


def one_tensor_per_device(rank: int, size: int) -> None:
    """A list's tensors count as those of further ranks."""
    group: Any = dist.group.WORLD
    every = torch.arange(2 * size) + 1
    for op, expected in {
        dist.ReduceOp.SUM: every.sum(),
        dist.ReduceOp.PRODUCT: every.prod(),
        dist.ReduceOp.MIN: every.min(),
        dist.ReduceOp.MAX: every.max(),
    }.items():
        tensors = numbers(rank, 2)
        given = options("allreduce", reduceOp=op)
        group.allreduce(tensors, given).get_future().wait()
        assert [int(each) for each in tensors] == [int(expected)] * 2
    for root in range(size):
        for index in range(2):
            tensors = numbers(rank, 2)
            given = options("broadcast", rootRank=root, rootTensor=index)
            group.broadcast(tensors, given).get_future().wait()
            assert [int(each) for each in tensors] == [2 * root + index + 1] * 2
    for count in (1, 2, 3):
        column = torch.zeros(1, 2, dtype=torch.int64)[:, 0]
        outputs = [[column.clone() for _ in range(count * size)] for _ in range(count)]
        group.allgather(outputs, numbers(rank, count)).wait()
        expected = torch.arange(count * size) + 1
        assert all(torch.equal(torch.cat(output), expected) for output in outputs)


def in_inference_mode(rank: int, size: int) -> None:
    """Results that are copied to their place are inference tensors."""
    with torch.inference_mode():
        outputs = [torch.zeros(2) for _ in range(size)]
        mine = torch.full((2,), float(rank))
        work: Any = dist.all_gather(outputs, mine, async_op=True)
        work.get_future().wait()
    assert [output.tolist() for output in outputs] == [[float(r)] * 2 for r in range(size)]


def large(rank: int, size: int) -> None:
    """Tensors that are not concatenated."""
    count = 5_000  # elements, 20 KB
    given = [torch.full((count,), 10.0 * rank + r) for r in range(size)]
    outputs = [torch.zeros(count) for _ in range(size)]
    places = [output.data_ptr() for output in outputs]
    dist.all_gather(outputs, given[rank])
    assert [int(output[-1]) for output in outputs] == [11 * r for r in range(size)]
    if dist.get_backend() != "gloo":  # Gloo has no all_to_all of lists
        dist.all_to_all(outputs, given)
        assert [int(output[-1]) for output in outputs] == [10 * r + rank for r in range(size)]
    for root in range(size):
        mine = torch.zeros(count)
        dist.scatter(mine, given if rank == root else None, root)
        assert torch.equal(mine, torch.full((count,), 10.0 * root + rank))
        dist.gather(given[root], outputs if rank == root else None, root)
        if rank == root:
            assert [int(output[-1]) for output in outputs] == [10 * r + root for r in range(size)]
    sums = [sum(10.0 * r + place for r in range(size)) for place in range(size)]
    dist.reduce_scatter(outputs[0], given)
    assert torch.equal(outputs[0], torch.full((count,), sums[rank]))
    assert [output.data_ptr() for output in outputs] == places
    assert [int(each[0]) for each in given] == [10 * rank + r for r in range(size)]


def numbered(rank: int, size: int) -> None:
    """The sequence number counts the collectives of a group."""
    group: Any = dist.group.WORLD
    first = group._get_sequence_number_for_group()  # noqa: SLF001  # PyTorch's interface
    for done in range(3):
        assert group._get_sequence_number_for_group() == first + done  # noqa: SLF001  # likewise
        dist.all_reduce(torch.ones(1))


def refused(rank: int, size: int) -> None:
    """The phrases that programs search for in Gloo's errors."""
    world: Any = dist.group.WORLD
    group = world._get_backend(torch.device("cpu"))  # noqa: SLF001  # PyTorch's interface
    one, wide, two = torch.zeros(1), torch.zeros(1, dtype=torch.int32), torch.zeros(2)
    row, other = [one] * size, (rank + 1) % size

    def rooted(name: str, *lists: Any, root: int = rank, tensor: int = 0) -> Callable[[], Any]:
        given = options(name, rootRank=root)
        if hasattr(given, "rootTensor"):
            given.rootTensor = tensor
        return lambda: getattr(group, name)(*lists, given)

    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("requires non-empty tensor list", lambda: group.allreduce([])),
        ("requires non-empty tensor list", lambda: group.allreduce_coalesced([])),
        ("invalid tensor type", lambda: group.allreduce([one, wide])),
        ("invalid tensor size", lambda: group.allreduce([one, two])),
        *(("invalid root rank", rooted("broadcast", [one], root=r)) for r in (-1, size)),
        *(("invalid root tensor", rooted("broadcast", [one], tensor=t)) for t in (-1, 1)),
        ("invalid root tensor", rooted("broadcast", [])),
        ("invalid tensor type", rooted("broadcast", [one, wide])),
        ("invalid tensor size", rooted("broadcast", [one, two])),
        *(("invalid root rank", rooted("reduce", [one], root=r)) for r in (-1, size)),
        ("invalid root tensor", rooted("reduce", [one], tensor=1)),
        ("requires a single-element tensor list", rooted("reduce", [one, one])),
        *(("invalid root rank", rooted("gather", [], [one], root=r)) for r in (-1, size)),
        ("requires a single-element input tensor list", rooted("gather", [], [one, one])),
        ("requires a single-element output list", rooted("gather", [], [one])),
        ("requires a single-element output list", rooted("gather", [row, row], [one])),
        ("Incorrect output list size 1. Output list size", rooted("gather", [[one]], [one])),
        ("invalid tensor type", rooted("gather", [[wide] * size], [one])),
        ("invalid tensor size", rooted("gather", [[two] * size], [one])),
        ("requires empty output on non-root", rooted("gather", [row], [one], root=other)),
        *(("invalid root rank", rooted("scatter", [one], [], root=r)) for r in (-1, size)),
        ("requires a single-element output tensor list", rooted("scatter", [one, one], [])),
        ("requires a single-element input list", rooted("scatter", [one], [])),
        ("requires a single-element input list", rooted("scatter", [one], [row, row])),
        ("Incorrect input list size 1. Input list size", rooted("scatter", [one], [[one]])),
        ("invalid tensor type", rooted("scatter", [one], [[wide] * size])),
        ("invalid tensor size", rooted("scatter", [one], [[two] * size])),
        ("requires empty input on non-root", rooted("scatter", [one], [row], root=other)),
        ("requires non-empty input tensor list", lambda: group.allgather([], [])),
        ("lists to have the same length", lambda: group.allgather([], [one])),
        ("lists to have the same length", lambda: group.allgather([row, row], [one])),
        ("invalid output tensor list", lambda: group.allgather([row * 2], [one])),
        ("invalid tensor type", lambda: group.allgather([row * 2] * 2, [one, wide])),
        ("invalid tensor size", lambda: group.allgather([row * 2] * 2, [one, two])),
        ("invalid tensor type", lambda: group.allgather([[wide] * size], [one])),
        ("invalid tensor type", lambda: group._allgather_base(torch.zeros(size).int(), one)),  # noqa: SLF001
        ("equal to world size", lambda: group.allgather_coalesced([[one]] * (size + 1), [one])),
        ("output tensor at index 0", lambda: group.allgather_coalesced([[two]] * size, [one])),
        ("invalid tensor type at", lambda: group.allgather_coalesced([[wide]] * size, [one])),
    ]
    for text, call in wrong:
        with pytest.raises(RuntimeError, match=text):
            call()
    dist.barrier()


ALL: Final = {
    each.__name__: each
    for each in (one_tensor_per_device, in_inference_mode, large, numbered, refused)
}
