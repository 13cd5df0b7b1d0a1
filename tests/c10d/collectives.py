"""What one rank does to try the collectives: each program asserts what the operation defines."""

from collections.abc import Callable
from datetime import timedelta
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _make_nccl_premul_sum
from torch.distributed import distributed_c10d as c10d

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
ARITHMETIC = ("SUM", "PRODUCT", "MIN", "MAX")
BITWISE = ("BAND", "BOR", "BXOR")


def values(rank: int, dtype: torch.dtype, count: int = 7) -> torch.Tensor:
    """Small whole numbers: sums and products of them are exact in every dtype."""
    generator = torch.Generator().manual_seed(rank + 1)
    drawn = torch.randint(0, 4, (count,), generator=generator)
    return (
        torch.complex(drawn.double(), drawn.flip(0).double()).to(dtype)
        if dtype.is_complex
        else drawn.to(dtype)
    )


def reductions(rank: int, size: int) -> None:
    """Every operation on every dtype for which PyTorch's own arithmetic defines it."""
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, torch.bool):
        for op in _defined(dtype):
            tensor = values(rank, dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            expected = _folded([values(r, dtype) for r in range(size)], op)
            assert tensor.dtype == dtype
            assert torch.equal(tensor, expected), (op, dtype, tensor, expected)


def _defined(dtype: torch.dtype) -> tuple[str, ...]:
    if dtype.is_complex:
        return ("SUM",)
    return ARITHMETIC if dtype.is_floating_point else ARITHMETIC + BITWISE


def _folded(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    fold: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "SUM": torch.add,
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    total = parts[0]
    for part in parts[1:]:
        total = fold[op](total, part)
    return total


def scaled_reductions(rank: int, size: int) -> None:
    """AVG and PREMUL_SUM, which Gloo lacks, of all_reduce, reduce and reduce_scatter."""
    mean = sum(float(r + 1) for r in range(size)) / size
    for dtype in (*FLOATS, *COMPLEX):
        for op, expected in (
            (dist.ReduceOp.AVG, mean),
            (_make_nccl_premul_sum(0.5), mean * size / 2),  # FSDP2's way
        ):
            tensor = torch.full((size * 2,), rank + 1.0).to(dtype)
            given, part = tensor.clone(), torch.empty(2, dtype=dtype)
            dist.reduce_scatter_tensor(part, given, op)
            assert torch.equal(given, tensor)  # the input stays as it is
            torch.testing.assert_close(part, torch.full((2,), expected).to(dtype))
            dist.reduce(given, 0, op)
            reduced = torch.full_like(tensor, expected) if rank == 0 else tensor
            torch.testing.assert_close(given, reduced)  # on other ranks it stays as it is
            if not dtype.is_complex:
                dist.all_reduce(tensor, op)
                torch.testing.assert_close(tensor, torch.full_like(tensor, expected))


def layouts(rank: int, size: int) -> None:
    """Strided, transposed, scalar, empty and conjugate tensors; parameters; views."""
    ranks = size * (size + 1) // 2
    base = torch.arange(24.0).reshape(4, 6)
    cases = {
        "transposed": base.clone().t(),
        "every other": base.clone()[:, ::2],
        "scalar": torch.tensor(1.0),
        "empty": torch.empty(0),
        "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(base.clone()),
    }
    for name, tensor in cases.items():
        expected = tensor.detach().clone() * ranks
        with torch.no_grad():
            tensor.mul_(rank + 1)
        dist.all_reduce(tensor)
        torch.testing.assert_close(tensor.detach(), expected, msg=name)
    rows = torch.full((4, 6), float(rank))
    dist.broadcast(rows[:, 1], src=size - 1)
    expected = torch.full((4, 6), float(rank))
    expected[:, 1] = size - 1
    assert torch.equal(rows, expected)


def copies(rank: int, size: int) -> None:
    """all_gather, gather, scatter and broadcast of every dtype."""
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, torch.bool):
        mine = values(rank, dtype, 4)
        everyone = torch.cat([values(r, dtype, 4) for r in range(size)])
        parts = [torch.empty(4, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, mine)
        assert torch.equal(torch.cat(parts), everyone)
        joined = torch.empty(4 * size, dtype=dtype)
        dist.all_gather_into_tensor(joined, mine)
        assert torch.equal(joined, everyone)
        dist.all_gather_into_tensor(joined.zero_(), joined[4 * rank : 4 * rank + 4].copy_(mine))
        assert torch.equal(joined, everyone)
        gathered = [torch.empty(4, dtype=dtype) for _ in range(size)] if rank == 1 else None
        dist.gather(mine, gathered, dst=1)
        assert gathered is None or torch.equal(torch.cat(gathered), everyone)
        source = [values(10 + r, dtype, 4) for r in range(size)] if rank == 1 else None
        part = torch.empty(4, dtype=dtype)
        dist.scatter(part, source, src=1)
        assert torch.equal(part, values(10 + rank, dtype, 4))
        dist.broadcast(mine, src=size - 1)
        assert torch.equal(mine, values(size - 1, dtype, 4))


def exchanges(rank: int, size: int) -> None:
    """all_to_all with rows that differ by pair, also with none, and by lists."""
    rows = [[(a + 2 * b) % 3 for b in range(size)] for a in range(size)]  # from a to b
    out_rows = [rows[peer][rank] for peer in range(size)]
    given = torch.full((sum(rows[rank]), 2), float(rank))
    output = torch.empty(sum(out_rows), 2)
    dist.all_to_all_single(output, given, out_rows, rows[rank])
    expected = torch.cat([torch.full((out_rows[peer], 2), float(peer)) for peer in range(size)])
    assert torch.equal(output, expected)
    inputs = [torch.full((peer + 1, 3), rank * 10 + peer) for peer in range(size)]
    outputs = [torch.empty((rank + 1, 3), dtype=torch.int64) for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    assert [int(o[0, 0]) for o in outputs] == [peer * 10 + rank for peer in range(size)]


def uneven_lists(rank: int, size: int) -> None:
    """all_gather and reduce_scatter by lists of tensors whose sizes differ, which Gloo lacks."""
    outputs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert [o.tolist() for o in outputs] == [[float(r)] * (r + 1) for r in range(size)]
    mine = torch.empty(rank + 1)
    dist.reduce_scatter(mine, [torch.full((r + 1,), float(r)) for r in range(size)])
    assert mine.tolist() == [float(rank * size)] * (rank + 1)


def coalesced(rank: int, size: int) -> None:
    """Coalescing managers of all-reduces (of two dtypes), gathers and reduce-scatters."""
    tensors = [torch.full((3,), rank + 1.0), torch.full((2,), rank + 1.0), torch.ones(1)]
    with c10d._coalescing_manager(async_ops=True) as manager:  # noqa: SLF001
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    total = size * (size + 1) / 2
    assert [t[0].item() for t in tensors] == [total, total, size]
    outputs = [torch.empty(size * 2) for _ in range(2)]
    with c10d._coalescing_manager():  # noqa: SLF001
        for index, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((2,), float(rank + index)))
    assert outputs[1].tolist() == [float(r + 1) for r in range(size) for _ in range(2)]
    parts = [torch.empty(2) for _ in range(2)]
    with c10d._coalescing_manager(device=torch.device("cpu")):  # noqa: SLF001
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.ones(2 * size))
    assert [p.tolist() for p in parts] == [[float(size)] * 2] * 2


def small_lists(rank: int, size: int) -> None:
    """Lists of small and large tensors of two dtypes, also none and strided ones, go as few
    operations, with the results of as many."""
    world: Any = dist.group.WORLD
    shapes: list[tuple[int, ...]] = [(3,), (0,), (2, 5), (200_000,), (7,), (1,)]
    kinds = [torch.float32, torch.int64, torch.float32, torch.float32, torch.int64, torch.float32]

    def drawn(peer: int) -> list[torch.Tensor]:
        return [
            values(peer + 10 * i, kind, prod(shape)).view(shape)
            for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
        ]

    outputs = [torch.empty(size, *part.shape, dtype=part.dtype) for part in drawn(0)]
    outputs[2] = torch.empty(5, 2, size).permute(2, 1, 0)
    work = world.allgather_into_tensor_coalesced(outputs, drawn(rank))
    assert len(work.parts) == 3  # the small ones of either dtype, and the large one
    work.wait()
    for output, *parts in zip(outputs, *(drawn(peer) for peer in range(size)), strict=True):
        assert torch.equal(output, torch.stack(parts))
    given = [torch.stack([part + peer for peer in range(size)]) for part in drawn(rank)]
    before, mine = [tensor.clone() for tensor in given], [torch.empty_like(p) for p in drawn(0)]
    mine[2] = torch.empty(5, 2).t()
    work = world.reduce_scatter_tensor_coalesced(mine, given)
    assert len(work.parts) == 3
    work.wait()
    for part, *parts in zip(mine, *(drawn(peer) for peer in range(size)), strict=True):
        assert torch.equal(part, torch.stack(parts).sum(0) + rank * size)
    assert all(map(torch.equal, before, given))


def messages(rank: int, size: int) -> None:
    """send before recv on all ranks, tags out of order, any source, batches, strided tensors."""
    after, before = (rank + 1) % size, (rank - 1) % size
    box = torch.empty(1000)
    sent = dist.isend(torch.full((1000,), float(rank)), after)
    dist.recv(box, before)
    assert sent is not None
    sent.wait()
    assert box.eq(before).all()
    works = [dist.isend(torch.tensor([float(tag)]), after, tag=tag) for tag in (1, 2, 3)]
    for tag in (3, 1, 2):
        one = torch.empty(1)
        assert dist.recv(one, before, tag=tag) == before
        assert one.item() == tag
    for work in works:
        assert work is not None
        work.wait()
    if rank == 0:
        found = set()
        for _ in range(1, size):
            one = torch.empty(1)
            source = dist.recv(one, tag=9)
            assert one.item() == source
            found.add(source)
        assert found == set(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=9)
    grid = torch.zeros(4, 4)
    batch = [
        dist.P2POp(dist.isend, torch.full((4,), float(rank)), after),
        dist.P2POp(dist.irecv, grid[:, 1], before),
    ]
    for request in dist.batch_isend_irecv(batch):
        request.wait()
    assert grid[:, 1].tolist() == [before] * 4
    assert grid.sum().item() == 4 * before


def groups(rank: int, size: int) -> None:
    """Subgroups in another order, of one rank, split, with names used again; all at once."""
    world: Any = dist.group.WORLD
    order = list(reversed(range(size)))
    turned = dist.new_group(order, sort_ranks=False)
    assert dist.get_group_rank(turned, rank) == turned.rank() == order.index(rank)
    output = torch.empty(size)
    dist.all_gather_into_tensor(output, torch.tensor([float(rank)]), group=turned)
    assert output.tolist() == [float(r) for r in order]
    alone = dist.new_subgroups(1)[0]  # type: ignore[no-untyped-call]
    one = torch.full((3,), float(rank))
    dist.all_reduce(one, group=alone)
    assert one.tolist() == [rank] * 3
    for _ in range(2):  # PyTorch gives both the same name
        pair = dist.new_group([0, 1], use_local_synchronization=True)
        if rank < 2:
            mine = torch.ones(1)
            dist.all_reduce(mine, group=pair)
            assert mine.item() == 2
            dist.destroy_process_group(pair)
    half = world.split_group([0, 1], group_name="half")
    assert (half is None) == (rank > 1)
    if half is not None:
        mine, both = torch.ones(1), torch.ones(1)
        first = half.allreduce([mine])
        second = turned.allreduce([both]) if size == 2 else None
        first.wait()
        assert mine.item() == 2
        if second is not None:
            second.wait()
            assert both.item() == 2
        half.shutdown()


def futures(rank: int, size: int) -> None:
    """Futures hold lists of tensors; their callbacks may wait for other collectives."""
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work is not None

    def again(done: Any) -> torch.Tensor:
        [tensor] = done.value()
        dist.all_reduce(tensor)
        return tensor  # type: ignore[no-any-return]

    assert work.get_future().then(again).wait().tolist() == [size * size] * 2
    assert work.is_completed()
    assert work.is_success()
    assert work.wait(timedelta(seconds=1))


def barriers(rank: int, size: int) -> None:
    world: Any = dist.group.WORLD
    dist.barrier()
    world.monitored_barrier(timedelta(seconds=20))
    world.monitored_barrier(timedelta(seconds=20), wait_all_ranks=True)


ALL: dict[str, Callable[..., None]] = {
    program.__name__: program
    for program in (
        reductions,
        scaled_reductions,
        layouts,
        copies,
        exchanges,
        uneven_lists,
        coalesced,
        small_lists,
        messages,
        groups,
        futures,
        barriers,
    )
}
