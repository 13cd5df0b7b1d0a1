"""One rank of `bench step`: each network trained for a few steps by each system."""

import random
import time
from itertools import pairwise
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import dlcp_client
from dlcp_client import cross_step, ddp
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.pace import paces
from dlcp_lab.replay.replay import replayed
from dlcp_lab.replay.shapes import scaled
from dlcp_lab.training.loop import Registration, parameters_digest
from dlcpd.contract.policy import LossPolicy

BUCKET_MB: Final = 25.0  # DDP's default; scaled like the network, so the number of buckets stays
BOUNDED_FROM: Final = 2  # steps; the least warm-up of a bounded policy
COUNTS: Final = ("sent", "retransmitted", "waived")


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Network -> system -> its measurements. `arguments` are those of `step`."""
    join_gloo(conductor)
    order = random.Random(arguments["seed"])  # equal on all ranks
    out = {}
    try:
        for name in arguments["models"]:
            turns = list(arguments["systems"])
            order.shuffle(turns)
            out[name] = {system: _train(conductor, name, system, arguments) for system in turns}
    finally:
        dist.destroy_process_group()
    return out


def _train(
    conductor: Conductor, name: str, system: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    scale = arguments["scale"]
    network = scaled(NETWORKS[name](), scale)
    plain = replayed(
        network, paces(network, arguments["line"][name], arguments["ratio"]), conductor.rank
    )
    model = DistributedDataParallel(plain, bucket_cap_mb=BUCKET_MB * scale)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    registration = _register(system, model, optimizer, arguments)
    conductor.progress(f"{name} over {system}: {arguments['warmup']} + {arguments['steps']} steps")
    for _ in range(arguments["warmup"]):
        _step(model, optimizer)
    conductor.barrier(f"{name}/{system}")
    begins = []
    for _ in range(arguments["steps"] + 1):
        begins.append(time.perf_counter())
        _step(model, optimizer)
    return {
        "times": [after - before for before, after in pairwise(begins)],
        "counts": _close(conductor, registration),
        "digest": parameters_digest(plain),
    }


def _step(model: DistributedDataParallel, optimizer: Optimizer) -> None:
    """A training step. It ends where the next one begins, because work crosses over."""
    optimizer.zero_grad()
    model(torch.zeros(())).backward()
    optimizer.step()


def _register(
    system: str, model: DistributedDataParallel, optimizer: Optimizer, arguments: dict[str, Any]
) -> Registration:
    if system == "gloo":
        return None
    policy: LossPolicy = dlcp_client.exact()
    if arguments["mode"] == "bounded":
        policy = dlcp_client.bounded(arguments["max_loss"])
    if system == "cross-step":
        return cross_step.register(model, optimizer, policy, warmup_steps=BOUNDED_FROM)
    return ddp.register(model, policy, warmup_steps=BOUNDED_FROM)


def _close(conductor: Conductor, registration: Registration) -> dict[str, int]:
    if isinstance(registration, cross_step.CrossStepRegistration):
        registration.synchronize()
    conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    if registration is None:
        return dict.fromkeys(COUNTS, 0)
    counts = {name: int(getattr(registration.ledger, name)) for name in COUNTS}
    registration.close()
    return counts
