"""One rank of `bench training`: every task over every transport, in the seed's own order."""

import random
from typing import Any

import torch.distributed as dist

from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.training.loop import Training, train
from dlcp_lab.training.tasks import TASKS


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Results of `training.loop.train`; `arguments`: seed, share of steps, transports."""
    join_gloo(conductor)
    seed = arguments["seed"]
    order = random.Random(seed)  # equal on all ranks
    out = []
    try:
        for kind in TASKS:
            task = kind()
            turns = list(arguments["transports"])
            order.shuffle(turns)
            for transport in turns:
                conductor.barrier(f"{task.name}/{transport}")
                steps = max(1, round(arguments["share"] * task.steps))
                out.append(train(conductor, Training(task, transport, steps, seed)))
        conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    finally:
        dist.destroy_process_group()
    return out
