"""Functional collectives by PyTorch's operators, as compiled code calls them; results of Gloo."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._dynamo import config

from tests.c10d.test_unmodified import BACKEND
from tests.c10d.worlds import over

OPERATORS: Any = torch.ops._c10d_functional  # noqa: SLF001  # no public name

Results = list[list[float]]


def _of(group: Any, rank: int, size: int) -> Results:
    """Results of all operators. The gather into a tensor also takes the group itself."""
    name, wait = group.group_name, OPERATORS.wait_tensor
    mine, many = torch.arange(size * 2.0) + rank, [torch.full((2,), rank + 1.0), torch.ones(3)]
    rows = [2] * size
    after, before = (rank + 1) % size, (rank - 1) % size
    room, seen = torch.zeros(size * 2, size * 2), torch.zeros(4)
    results = [
        OPERATORS.all_reduce(mine, "sum", name),
        OPERATORS.all_reduce_(mine.clone(), "max", name),
        OPERATORS.all_gather_into_tensor(mine, size, name),
        OPERATORS.all_gather_into_tensor_out(mine, size, name, out=torch.zeros(2 * size * size)),
        OPERATORS.all_gather_into_tensor_out(many[0], size, group, out=room[0]),
        OPERATORS.reduce_scatter_tensor(mine, "sum", size, name),
        OPERATORS.reduce_scatter_tensor_out(mine, "sum", size, name, out=torch.zeros(2)),
        OPERATORS.all_to_all_single(mine, rows, rows, name),
        OPERATORS.broadcast(mine, size - 1, name),
        OPERATORS.broadcast_(mine.clone(), 0, name),
        *OPERATORS.all_reduce_coalesced(many, "sum", name),
        *OPERATORS.all_gather_into_tensor_coalesced(many, size, name),
        *OPERATORS.reduce_scatter_tensor_coalesced([mine, mine * 2], "sum", size, name),
        *OPERATORS.batch_p2p_ops(
            ["isend", "irecv", "irecv", "isend"],
            [after, before, before, after],
            [7, 8, 7, 8],
            [many[0], seen, torch.zeros(2), torch.full((4,), rank + 8.0)],
            name,
        ),
    ]
    return [wait(result).flatten().tolist() for result in results] + room.tolist()


def operators(rank: int, size: int) -> Results:
    """Of the job's group, and of a group of Gloo in the same process."""
    return [
        result
        for group in (dist.group.WORLD, dist.new_group(backend="gloo"))
        for result in _of(group, rank, size)
    ]


def compiled_messages(rank: int, size: int) -> Results:
    """A batch of messages in one graph."""
    config.enable_p2p_compilation = True
    seen = torch.zeros(4)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def around(mine: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, mine, (rank + 1) % size),
                dist.P2POp(dist.irecv, seen, (rank - 1) % size),
            ]
        )
        for work in works:
            work.wait()
        return seen * 2

    return [around(torch.full((4,), rank + 1.0), seen).tolist(), seen.tolist()]


def refused(rank: int, size: int) -> None:
    group: Any = dist.group.WORLD
    with pytest.raises(dist.DistBackendError, match="neither isend nor irecv"):
        OPERATORS.batch_p2p_ops(["isned"], [0], [0], [torch.ones(1)], group.group_name)
    out = torch.zeros(size + 1)
    with pytest.raises(dist.DistBackendError, match="match"):
        OPERATORS.all_gather_into_tensor_out(torch.ones(1), size, group.group_name, out=out)


@pytest.mark.parametrize("program", [operators, compiled_messages])
def test_results_equal_gloos(program: Any, tmp_path: Path) -> None:
    theirs = over("gloo", program, 2, tmp_path)
    assert over(BACKEND, program, 2, tmp_path) == theirs


def test_errors(tmp_path: Path) -> None:
    over(BACKEND, refused, 2, tmp_path)
