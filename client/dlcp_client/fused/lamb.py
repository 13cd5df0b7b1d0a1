"""LAMB, which torch.optim lacks: an optimizer of torch for any training, and for `fused`.

Source: You et al., Large Batch Optimization for Deep Learning, ICLR 2020.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from dlcpd.contract.errors import BadConfig


class LAMB(Optimizer):
    """Adam whose step, for each parameter, has the norm of the parameter times `lr`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        """`params`, and the settings of groups, as of torch.optim.AdamW. Raises: BadConfig."""
        if not (lr >= 0 and eps >= 0 and weight_decay >= 0 and all(0 <= b < 1 for b in betas)):
            raise BadConfig(
                f"LAMB(lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}): betas are "
                f"0 or more and below 1, the others 0 or more"
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    way = self.direction(parameter, parameter.grad.clone(), group)
                    ratio = trust(squares(parameter), squares(way))
                    move(parameter, way, group, float(ratio))
        return loss

    def direction(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> Tensor:
        """Add `gradient` to the moments of `parameter`, and overwrite it with the step of length 1
        of Adam, decay included. Element by element. Returns it."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        count, (beta1, beta2) = int(state["step"]), group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.div(state["exp_avg_sq"], 1 - beta2**count, out=gradient)
        gradient.sqrt_().add_(group["eps"])
        torch.div(state["exp_avg"], gradient, out=gradient)
        gradient.div_(1 - beta1**count)
        return gradient.add_(parameter, alpha=group["weight_decay"])


def squares(values: Tensor) -> Tensor:
    """The sum of their squares, in float64."""
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square()


def trust(weights: Tensor, way: Tensor) -> Tensor:
    """Norm of the weights / norm of the direction, from sums of squares; 1 if one of them is 0."""
    known = (weights > 0) & (way > 0)
    return torch.where(known, (weights / way).sqrt(), 1.0)


def move(parameter: Tensor, way: Tensor, group: Mapping[str, Any], ratio: float) -> None:
    """Update a parameter, or a part of it."""
    parameter.add_(way, alpha=-float(group["lr"]) * ratio)
