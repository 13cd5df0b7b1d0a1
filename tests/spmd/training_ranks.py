"""One rank of a training of every model, over both backends: compared with one device on rank 0."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from dlcp_client.spmd.module import Partitioned
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.program import Program
from dlcp_client.spmd.runtime import GroupRanks, check_equal, device_mesh
from tests.c10d.worlds import job
from tests.spmd.ranks import full, shard
from tests.spmd.trainings import CASES, Case, case

STEPS: Final = 10
BACKENDS: Final = ("gloo", "dlcp")
OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {
    "SGD": partial(SGD, lr=0.05, momentum=0.9),
    # Gradients of biases before a batch norm are rounding errors, which a smaller eps enlarges.
    "AdamW": partial(AdamW, lr=0.01, eps=1e-6),
}
State = Mapping[str, Tensor]


def everything(rank: int, size: int, folder: str) -> dict[str, str]:
    """By "backend model optimizer": what differs from one device, "" if nothing does.

    Each model is planned once: capture takes longer than ten steps."""
    torch.set_num_threads(1)
    cases = {name: case(name, size) for name in CASES}
    plans = {name: one.plan() for name, one in cases.items()}
    right = {
        (name, method): _alone(cases[name], method)
        for name in (cases if rank == 0 else ())
        for method in OPTIMIZERS
    }
    found = {}
    for backend in BACKENDS:
        with job(backend, f"{folder}/{backend}", rank, size):
            for name, one in cases.items():
                for method in OPTIMIZERS:
                    made = _divided(one, plans[name], method)
                    said = _apart(made, right[name, method]) if rank == 0 else ""
                    found[f"{backend} {name} {method}"] = said
    return found


def _alone(given: Case, method: str) -> State:
    """Losses, parameters and buffers after all steps on one device; the model stays as it is."""
    start = {name: x.clone() for name, x in given.model.state_dict().items()}
    found = _trained(given.model, given.arguments, method)
    found |= {name: x.detach().clone() for name, x in given.model.state_dict().items()}
    given.model.load_state_dict(start)
    return found


def _divided(given: Case, made: Partition, method: str) -> State:
    """The same of all ranks."""
    devices = device_mesh(given.mesh, "cpu")
    check_equal(made.text)
    parallel = Partitioned(Program(made, GroupRanks(given.mesh, devices)), given.model, devices)
    dims = given.inputs or [()] * len(given.arguments)
    pairs = zip(given.arguments, dims, strict=True)
    found = _trained(parallel, [shard(x, one or (), given.mesh) for x, one in pairs], method)
    for name, x in parallel.state_dict().items():
        found[name] = full(x)
    return found


def _trained(model: nn.Module, given: Sequence[Tensor], method: str) -> dict[str, Tensor]:
    """The loss of each step."""
    optimizer, found = OPTIMIZERS[method](model.parameters()), {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(*given)
        loss.backward()
        optimizer.step()
        found[f"loss {step}"] = loss.detach().clone()
    return found


def _apart(found: State, right: State) -> str:
    try:
        torch.testing.assert_close(dict(found), dict(right), rtol=1e-9, atol=1e-9)
    except AssertionError:
        return traceback.format_exc(limit=0)
    return ""
