"""One rank of `dlcpctl demo`: the same training over each transport, a step each in turn."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp
from dlcp_lab.demo.turns import DLCPD, GLOO, SKIPPED
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.training.loop import BUCKET_MB, books, parameters_digest, score
from dlcp_lab.training.tasks import Digits, Task

ROUNDS: Final = (12, 60)  # at least, whatever they take, and at most


@dataclass(slots=True)
class TransportTraining:
    """The training over one transport."""

    task: Task
    model: DistributedDataParallel
    plain: nn.Module
    optimizer: torch.optim.Optimizer
    registration: ddp.DDPRegistration | None
    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def step(self, number: int, rank: int) -> None:
        """One step of the training loop."""
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, number, rank)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.optimizer.step()
        self.times.append(time.perf_counter() - begin)
        self.losses.append(loss.item())


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, Any]:
    """Per transport: losses, seconds and final score; dlcpd's counts. `arguments`: `seconds` that
    all steps may take."""
    join_gloo(conductor)
    try:
        task = Digits()
        lanes = {name: _lane(task, name) for name in (GLOO, DLCPD)}
        _train(conductor, lanes, arguments["seconds"])
        return {
            "lanes": {name: _result(lane) for name, lane in lanes.items()},
            "books": books(conductor, lanes[DLCPD].registration),
        }
    finally:
        dist.destroy_process_group()


def _lane(task: Task, transport: str) -> TransportTraining:
    torch.manual_seed(0)
    plain = task.model()
    model = DistributedDataParallel(plain, bucket_cap_mb=BUCKET_MB)
    registration = None
    if transport == DLCPD:
        registration = ddp.register(model, bounded(), warmup_steps=SKIPPED)
    return TransportTraining(task, model, plain, task.optimizer(plain), registration)


def _train(conductor: Conductor, lanes: dict[str, TransportTraining], seconds: float) -> None:
    least, most = ROUNDS
    began = conductor.barrier("begin")
    for number in range(most):
        order = list(lanes.items())[:: 1 if number % 2 else -1]  # each goes first in turn
        for _, lane in order:
            now = conductor.barrier("step")  # equal on all ranks
            if number >= least and now - began > seconds:
                return
            lane.step(number, conductor.rank)
        told = (f"{name} {lane.times[-1] * 1e3:6.0f} ms" for name, lane in lanes.items())
        loss = lanes[DLCPD].losses[-1]
        conductor.progress(f"step {number + 1:2}: {', '.join(told)}, loss {loss:.3f}")


def _result(lane: TransportTraining) -> dict[str, Any]:
    return {
        "losses": lane.losses,
        "times": lane.times,
        "score": score(lane.task, lane.plain),
        "digest": parameters_digest(lane.plain),
    }
