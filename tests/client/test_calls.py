"""The Python functions that a repeated operation calls in the client: each costs some 0.1 us and
the GIL, at every step of a training."""

import select
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, exact
from dlcp_client.c10d.process_group import ProcessGroup
from tests.client.stand_in import StandIn

SIZE = 1024  # elements: 4 KiB


def counted(call: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """The result of a call, and the Python functions that it calls on this thread."""
    found = Counter[str]()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            found[frame.f_code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, found


def calls_of(world: StandIn, submit: Callable[[int], Any]) -> Counter[str]:
    """The calls of rank 0 for an operation that has run before, from its submission to its end:
    the other rank submits it first, and rank 0 waits for an answer that has arrived."""
    lane = world.sessions[0]._connection.lanes._lanes[0]  # noqa: SLF001
    for _ in range(3):
        other = submit(1)
        work, found = counted(lambda: submit(0))
        select.select([lane], [], [], 30)
        found += counted(work.wait)[1]
        other.wait()
    return found


def arena(session: Session[torch.Tensor]) -> torch.Tensor:
    return session.zeros(SIZE)


def ordinary(session: Session[torch.Tensor]) -> torch.Tensor:
    return torch.zeros(SIZE)


@pytest.mark.parametrize(
    ("memory", "op", "options", "most"),
    [
        (arena, "sum", {}, 46),
        (arena, "avg", {"policy": exact(deadline=60.0)}, 46),
        (arena, "avg", {"policy": bounded(0.01), "name": "layer", "exempt": [(0, 64)]}, 51),
        (ordinary, "sum", {}, 64),
    ],
    ids=["arena", "policy", "bounded", "ordinary"],
)
def test_an_all_reduce(
    world: StandIn,
    memory: Callable[[Session[torch.Tensor]], torch.Tensor],
    op: str,
    options: dict[str, Any],
    most: int,
) -> None:
    tensors = [memory(session) for session in world.sessions]
    found = calls_of(
        world, lambda rank: world.sessions[rank].all_reduce(tensors[rank], op, **options)
    )
    assert found.total() <= most, found


def test_an_all_reduce_of_torch_distributed(world: StandIn) -> None:
    def unused(*_: Any) -> Any: ...

    tensors = [torch.zeros(SIZE) for _ in world.sessions]
    groups = [
        ProcessGroup(HashStore(), session.world, timedelta(seconds=60), split=unused, end=unused)
        for session in world.sessions
    ]
    options = dist.AllreduceOptions()
    found = calls_of(world, lambda rank: groups[rank].allreduce([tensors[rank]], options))
    assert found.total() <= 89, found
