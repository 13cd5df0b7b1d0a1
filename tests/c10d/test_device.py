"""The backend and the hooks of FSDP2 with tensors of a fake device, over real daemons."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dlcp_lab.device.fake import FakeDevice
from tests.c10d import collectives, fsdp_programs, programs
from tests.c10d.worlds import Program, on_each_rank, over

# A build of PyTorch without CUDA has no such device for "dlcp" alone.
DLCP: Final = "cpu:dlcp,cuda:dlcp"


def held(rank: int, size: int, *chosen: Program) -> list[Any]:
    """Programs with all tensors of this process on a device, with delays of its own."""
    with FakeDevice(seed=rank, name=f"fake:{rank}", slowest=0.001).holding_all():
        return [program(rank, size) for program in chosen]


def both_ways(rank: int, size: int, *chosen: Program) -> list[Any]:
    """Their results on a device, and on the CPU."""
    there = held(rank, size, *chosen)
    return list(zip(there, [program(rank, size) for program in chosen], strict=True))


def test_every_collective_is_what_it_defines(tmp_path: Path) -> None:
    over(DLCP, held, 2, tmp_path, *collectives.ALL.values(), _refused)


def test_unmodified_training_is_that_on_the_cpu_bit_for_bit(tmp_path: Path) -> None:
    chosen = (programs.ddp, programs.fsdp, programs.pipeline)
    for rank in over(DLCP, both_ways, 2, tmp_path, *chosen):
        for there, here in rank:
            assert there.keys() == here.keys()
            assert all(np.array_equal(there[name], here[name]) for name in there)


def test_hooks_of_fsdp_change_no_bit_and_show_whole_gradients(tmp_path: Path) -> None:
    over(DLCP, held, 2, tmp_path, fsdp_programs.exact_hooks, fsdp_programs.seen_by_hooks)


def test_a_group_for_cuda_alone(tmp_path: Path) -> None:
    assert on_each_rank(_for_cuda_alone, 2, str(tmp_path / "store")) == [3.0, 3.0]


def _for_cuda_alone(rank: int, size: int, store: str) -> float:
    dist.init_process_group("cuda:dlcp", f"file://{store}", rank=rank, world_size=size)
    with FakeDevice(seed=rank).holding_all():
        given = torch.full((10,), rank + 1.0)
        dist.all_reduce(given)
        dist.destroy_process_group()
    return float(given[0])


def _refused(rank: int, size: int) -> None:
    with pytest.raises(RuntimeError, match="no backend for device meta"):
        dist.all_reduce(torch.empty(1, device="meta"))
