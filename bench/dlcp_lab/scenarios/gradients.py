"""Contributions to reduce: noise, or the gradient of a model that is learning."""

from functools import cache

import numpy as np
import torch
from torch import nn

from dlcp_lab.training.tasks import Source, Task

STEPS = 3  # of training before the gradient is taken: the first ones are untypical


def gradient(kind: str, size: int, *, seed: tuple[int, ...]) -> torch.Tensor:
    """`size` bytes of float32. "noise": normal numbers, all segments with equal energy; "model": a
    real gradient of the character transformer, repeated to the size."""
    count = max(size // 4, 1)
    if kind == "noise":
        numbers = np.random.default_rng(seed).standard_normal(count, np.float32)
        return torch.from_numpy(numbers)
    flat = _of_model(seed[0], seed[1])
    return flat.repeat(-(-count // len(flat)))[:count].clone()


@cache
def _of_model(seed: int, rank: int) -> torch.Tensor:
    """The gradient of one rank's batch after a few steps of training."""
    torch.manual_seed(seed)
    task: Task = Source()
    model = task.model()
    optimizer = task.optimizer(model)
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        task.loss(model, step, rank).backward()  # type: ignore[no-untyped-call]  # torch's own
        if step < STEPS:
            optimizer.step()
    return _flat(model)


def _flat(model: nn.Module) -> torch.Tensor:
    grads = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
    return torch.cat(grads)
