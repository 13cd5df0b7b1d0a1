"""One rank of `dlcpctl demo --full`: a training script as torchrun would start it."""

from typing import Any, Final

import torch
import torch.distributed as dist

from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.training.loop import Training, train
from dlcp_lab.training.tasks import TASKS

# Transport and seed of each training of a task. All transports have seed 0; Gloo's other seeds
# show the spread of trainings that differ by chance alone.
TRAININGS: Final = (
    ("gloo", 0), ("reference", 0), ("exact", 0), ("bounded", 0), ("gloo", 1), ("gloo", 2),
)  # fmt: skip


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Each training of TRAININGS for each task; `arguments`: share of the steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # the environment has RANK, WORLD_SIZE and MASTER_*
    out = []
    try:
        for kind in TASKS:
            for transport, seed in TRAININGS:
                task = kind()
                steps = max(1, round(arguments["share"] * task.steps))
                out.append(train(conductor, Training(task, transport, steps, seed)))
        return out
    finally:
        dist.destroy_process_group()
