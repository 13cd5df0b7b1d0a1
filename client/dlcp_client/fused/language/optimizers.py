"""Optimizers as programs, with torch's kernels for those that torch has on the CPU.

The gradient `g` is local, and its average is used. State begins at 0, and the step `t` at 1. Except
for LAMB, which torch.optim lacks, results are those of its class of the same name, to rounding.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from .layouts import local, replicated
from .operations import all_reduce, norm, update
from .program import program, scalar

Betas = tuple[float, float]
BETAS: Final = (0.9, 0.999)
Given = Mapping[str, Tensor]  # flat tensors and numbers by name


def _sgd(given: Given, *, weight_decay: float = 0.0) -> None:
    _run_sgd(given, [], 0.0, weight_decay)


def _momentum(given: Given, *, mu: float = 0.9, weight_decay: float = 0.0) -> None:
    _run_sgd(given, [given["m"]], mu, weight_decay)


def _run_sgd(given: Given, buffers: list[Tensor], momentum: float, weight_decay: float) -> None:
    torch._fused_sgd_(  # torch's name
        [given["w"]],
        [given["g"]],
        buffers,
        weight_decay=weight_decay,
        momentum=momentum,
        lr=given["lr"].item(),
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _adam(
    given: Given, *, betas: Betas = BETAS, eps: float = 1e-8, weight_decay: float = 0.0
) -> None:
    _run_adam(torch._fused_adam_, given, betas, eps, weight_decay)  # torch's name


def _adamw(
    given: Given, *, betas: Betas = BETAS, eps: float = 1e-8, weight_decay: float = 0.01
) -> None:
    _run_adam(torch._fused_adamw_, given, betas, eps, weight_decay)  # torch's name


def _run_adam(run: Any, given: Given, betas: Betas, eps: float, weight_decay: float) -> None:
    run(
        [given["w"]],
        [given["g"]],
        [given["m"]],
        [given["v"]],
        [],
        [given["t"].float()],
        lr=given["lr"].item(),
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )


@program(g=local, w=replicated, lr=scalar, kernel=_sgd)
def sgd(g: Tensor, w: Tensor, lr: Tensor, *, weight_decay: float = 0.0) -> Tensor:
    """Gradient descent."""
    g = all_reduce(g, "avg") + weight_decay * w
    return update(w, w - lr * g)


@program(g=local, w=replicated, m=replicated, lr=scalar, kernel=_momentum)
def momentum(
    g: Tensor, w: Tensor, m: Tensor, lr: Tensor, *, mu: float = 0.9, weight_decay: float = 0.0
) -> Tensor:
    """Gradient descent with momentum."""
    m = update(m, mu * m + all_reduce(g, "avg") + weight_decay * w)
    return update(w, w - lr * m)


def _moments(  # noqa: PLR0917  # the state of Adam and its constants
    g: Tensor, m: Tensor, v: Tensor, t: Tensor, betas: Any, eps: Any
) -> tuple[Tensor, Tensor]:
    """Update both moments of `g`: the first, and the corrected root of the second plus `eps`."""
    m = update(m, betas[0] * m + (1 - betas[0]) * g)
    v = update(v, betas[1] * v + (1 - betas[1]) * g * g)
    return m, (v / (1 - betas[1] ** t)).sqrt() + eps


@program(g=local, w=replicated, m=replicated, v=replicated, t=scalar, lr=scalar, kernel=_adam)
def adam(  # noqa: PLR0913, PLR0917  # inputs and constants of a program
    g: Tensor,
    w: Tensor,
    m: Tensor,
    v: Tensor,
    t: Tensor,
    lr: Tensor,
    *,
    betas: Betas = BETAS,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Tensor:
    """Adam."""
    g = all_reduce(g, "avg") + weight_decay * w
    m, root = _moments(g, m, v, t, betas, eps)
    return update(w, w - lr / (1 - betas[0] ** t) * m / root)


@program(g=local, w=replicated, m=replicated, v=replicated, t=scalar, lr=scalar, kernel=_adamw)
def adamw(  # noqa: PLR0913, PLR0917  # inputs and constants of a program
    g: Tensor,
    w: Tensor,
    m: Tensor,
    v: Tensor,
    t: Tensor,
    lr: Tensor,
    *,
    betas: Betas = BETAS,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Tensor:
    """Adam with decoupled weight decay."""
    g = all_reduce(g, "avg")
    m, root = _moments(g, m, v, t, betas, eps)
    return update(w, w * (1 - lr * weight_decay) - lr / (1 - betas[0] ** t) * m / root)


def _lamb_direction(  # noqa: PLR0913, PLR0917  # as `_moments`
    g: Tensor, w: Tensor, m: Tensor, v: Tensor, t: Tensor, betas: Any, eps: Any, weight_decay: Any
) -> Tensor:
    """The step of Adam of length 1, decay included, from the average of `g`."""
    m, root = _moments(g, m, v, t, betas, eps)
    u: Tensor = m / (1 - betas[0] ** t) / root + weight_decay * w
    return u


@program(g=local, w=replicated, m=replicated, v=replicated, t=scalar, lr=scalar)
def lamb(  # noqa: PLR0913, PLR0917  # inputs and constants of a program
    g: Tensor,
    w: Tensor,
    m: Tensor,
    v: Tensor,
    t: Tensor,
    lr: Tensor,
    *,
    betas: Betas = BETAS,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
) -> Tensor:
    """LAMB, of one layer: the step has the norm of the weights."""
    u = _lamb_direction(all_reduce(g, "avg"), w, m, v, t, betas, eps, weight_decay)
    sizes = norm(w), norm(u)
    ratio = torch.where((sizes[0] > 0) & (sizes[1] > 0), sizes[0] / sizes[1], 1.0)
    return update(w, w - lr * ratio * u)


@program(
    g=local,
    w=replicated,
    m=replicated,
    v=replicated,
    t=scalar,
    beta1=scalar,
    beta2=scalar,
    eps=scalar,
    weight_decay=scalar,
)
def lamb_direction(  # noqa: PLR0913, PLR0917  # inputs of a program
    g: Tensor,
    w: Tensor,
    m: Tensor,
    v: Tensor,
    t: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
) -> Tensor:
    """The part of LAMB before its norms, for `fused.LAMB`, whose settings may change."""
    g = all_reduce(g, "avg")
    return _lamb_direction(g, w, m, v, t, (beta1, beta2), eps, weight_decay)


ALL: Final = {"sgd": sgd, "momentum": momentum, "adam": adam, "adamw": adamw, "lamb": lamb}
