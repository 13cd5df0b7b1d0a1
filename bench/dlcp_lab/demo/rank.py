"""One rank of `dlcpctl demo`: a training script as torchrun would start it."""

from typing import Any, Final

import torch
import torch.distributed as dist

from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.training.loop import Training, train
from dlcp_lab.training.tasks import TASKS

TRANSPORTS: Final = ("gloo", "exact", "bounded")


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Every task over every transport."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say the rest
    try:
        return [
            train(conductor, Training(task, transport, round(arguments["share"] * task.steps)))
            for kind in TASKS
            for transport in TRANSPORTS
            for task in [kind()]
        ]
    finally:
        dist.destroy_process_group()
