"""Traffic classes of gradients reach the operations of dlcp's groups."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client.c10d import ProcessGroup
from dlcp_client.c10d.single_rank import CompletedWork, SingleRankGroup
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.runtime import GroupRanks


class Kept(SingleRankGroup):
    """One of two ranks, whose operations do nothing but keep their layers."""

    size = 2

    def __init__(self) -> None:
        self.kept: list[list[Any]] = []

    def all_reduce(self, *given: Any, layers: Iterable[Any] = (), **more: Any) -> CompletedWork:
        self.kept.append(list(layers))
        return CompletedWork()

    def reduce_scatter(self, *given: Any, layers: Iterable[Any] = (), **more: Any) -> CompletedWork:
        self.kept.append(list(layers))
        return CompletedWork()


class Ranks(GroupRanks):
    """Of one group, without a job."""

    def __init__(self, group: ProcessGroup) -> None:
        self.mesh, self._groups = Mesh({"a": 2}), {"a": group}


def no_split(*_: Any) -> ProcessGroup:
    raise NotImplementedError


def test_each_tensor_of_an_operation_has_its_class() -> None:
    kept = Kept()
    limit = timedelta(seconds=1)
    group = ProcessGroup(HashStore(), kept, limit, split=no_split, end=lambda _: None)
    ranks = Ranks(group)
    given = [torch.ones(5, 2), torch.ones(0, 2), torch.ones(3)]
    ranks.begin_sums(given, "a", ["back", "middle", "front"]).end()
    assert kept.kept == [[(0, "back"), (40, "front")]]  # the empty one has no bytes
    ranks.begin_scatters(given[:1] + given[2:], "a", [0, 0], ["back", "front"]).end()
    # The parts of rank 0, 3 x 2 and 2 elements, then those of rank 1.
    assert kept.kept[1] == [(0, "back"), (24, "front"), (32, "back"), (56, "front")]
    ranks.all_reduce(given[0], "a")
    assert kept.kept[2] == []
