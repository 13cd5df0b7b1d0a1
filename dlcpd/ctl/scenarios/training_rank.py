"""One rank of `bench training`: every task over every transport, in the seed's own order."""

import random
from typing import Any

import torch.distributed as dist

from dlcpd.ctl.ranks import Conductor
from dlcpd.ctl.tasks import TASKS
from dlcpd.ctl.tensors import join_gloo
from dlcpd.ctl.training_loop import Training, train


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """What `training_loop.train` tells of each; `arguments`: seed, share of steps, transports."""
    join_gloo(conductor)
    seed = arguments["seed"]
    order = random.Random(seed)  # noqa: S311  # equal on all ranks
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
        conductor.barrier("end")  # a rank that leaves fails what others have not finished
    finally:
        dist.destroy_process_group()
    return out
