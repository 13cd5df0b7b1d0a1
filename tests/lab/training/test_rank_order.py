"""The reference transport: equal to the reference, and different from another order of addition."""

from typing import Any

import numpy as np
import torch.distributed as dist

from dlcp_lab.ranks import launch, reference
from dlcp_lab.ranks.hosts import Hosts
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import as_stored, as_tensor, join_gloo
from dlcp_lab.training.rank_order import average

COUNT = 1000


def run(conductor: Conductor, _arguments: dict[str, Any]) -> dict[str, str]:
    """On a rank: the bits of the mean, by dtype."""
    join_gloo(conductor)
    try:
        out = {}
        for dtype in ("float32", "float16", "bfloat16", "float64"):
            part = reference.contribution(dtype, COUNT, seed=1, rank=conductor.rank)
            out[dtype] = as_stored(average(as_tensor(part, dtype))).tobytes().hex()
        conductor.barrier()
        return out
    finally:
        dist.destroy_process_group()


def test_every_rank_gets_the_mean_in_rank_order(hosts: Hosts) -> None:
    work = launch.Work("tests.lab.training.test_rank_order", {}, 60.0)
    ranks = launch.run(hosts, work, progress=lambda _: None)
    for dtype, first in ranks[0].items():
        parts = [reference.contribution(dtype, COUNT, seed=1, rank=rank) for rank in range(3)]
        assert first == reference.all_reduce(parts, dtype, "avg").tobytes().hex()
        assert {rank[dtype] for rank in ranks} == {first}


def test_another_order_gives_other_bits() -> None:
    """Or equal digests would prove nothing."""
    parts = [reference.contribution("float32", COUNT, seed=1, rank=rank) for rank in range(3)]
    ordered, reverse = (reference.all_reduce(p, "float32", "avg") for p in (parts, parts[::-1]))
    assert reference.differing(ordered, reverse).any()
    assert np.allclose(ordered, reverse)
