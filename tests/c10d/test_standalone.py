"""Groups with a session of their own, one after the other in one process, as managers make them."""

import gc
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore

from dlcp_client import c10d
from dlcpd.contract.errors import PeerLost, SessionClosed
from tests.client.real import WORLD, each_rank

TIMEOUT = timedelta(seconds=60)


def summed(group: c10d.ProcessGroup, value: float) -> float:
    tensor = torch.full((100,), value)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM  # type: ignore[assignment]
    group.allreduce([tensor], options).wait()
    return float(tensor[0])


@pytest.mark.processes
def test_a_smaller_group_follows_one_that_lost_a_member() -> None:
    store = HashStore()
    first = [PrefixStore("1/", store) for _ in range(WORLD)]
    groups: list[Any] = each_rank(lambda r: c10d.process_group(first[r], r, WORLD, TIMEOUT))
    assert each_rank(lambda rank: summed(groups[rank], rank + 1.0)) == [3.0, 3.0]
    half = groups[0].split_group([0])
    assert half.size() == 1 and summed(half, 5.0) == 5.0
    groups[1].abort()
    with pytest.raises(dist.DistBackendError) as caught:
        summed(groups[0], 1.0)
    assert isinstance(caught.value, PeerLost) and caught.value.rank == 1
    groups[0].abort()
    with pytest.raises(SessionClosed):
        summed(groups[0], 1.0)
    alone = c10d.process_group(PrefixStore("2/", store), 0, 1, TIMEOUT)
    assert alone.size() == 1 and summed(alone, 7.0) == 7.0
    alone.abort()


@pytest.mark.processes
def test_a_group_ends_with_the_last_reference_to_it_its_splits_and_their_works() -> None:
    """As PyTorch's own groups do: torchft's `shutdown` drops a group, and calls nothing."""
    store = HashStore()
    groups: list[Any] = each_rank(lambda r: c10d.process_group(store, r, WORLD, TIMEOUT))
    halves = each_rank(lambda rank: groups[rank].split_group([0, 1]))
    tensor = torch.ones(3)
    works = each_rank(lambda rank: groups[rank].allreduce([tensor.clone()]))
    groups.pop()
    gc.collect()
    assert each_rank(lambda rank: works[rank].wait()) == [True, True]
    works.clear()
    assert each_rank(lambda rank: summed(halves[rank], rank + 1.0)) == [3.0, 3.0]
    began = time.monotonic()
    work = groups[0].allreduce([tensor])
    halves.pop()
    with pytest.raises(PeerLost):
        work.wait()
    assert time.monotonic() - began < TIMEOUT.total_seconds() / 2, "nothing waits for the timeout"
    groups[0].abort()
