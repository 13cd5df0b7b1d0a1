"""LAMB, which torch.optim lacks: an optimizer of torch for any training, and for `fused`.

Source: You et al., Large Batch Optimization for Deep Learning, ICLR 2020.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from dlcp_client.fused.language.kernels import checked_kernel
from dlcp_client.fused.language.optimizers import lamb_direction
from dlcp_client.fused.program_optimizer import (
    check_setting,
    flat_update,
    kernel_on,
    number,
    step_each,
)
from dlcp_client.fused.saved_state import check_saved
from dlcpd.contract.errors import BadConfig

STATE: Final = ("exp_avg", "exp_avg_sq")  # names of the moments, as of torch's Adam


class LAMB(Optimizer):
    """Adam whose step, for each parameter, has the norm of the parameter times `lr`."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        kernel: str = "auto",
    ) -> None:
        """`params`, and the settings of groups, as of torch.optim.AdamW; `kernel`: as of
        ProgramOptimizer. Compiles, which takes seconds for the first time. Raises: BadConfig."""
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            check_setting(name, value)
        given: Any = betas
        if not isinstance(given, Sequence) or len(given) != 2:
            raise BadConfig(f"betas={betas!r:.40} is not valid: give two numbers, as (0.9, 0.999)")
        for one in betas:
            check_setting("betas", one, below=1)
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )
        self.kernel = checked_kernel(kernel)
        for one in {p.dtype: p for group in self.param_groups for p in group["params"]}.values():
            flat_update(lamb_direction, one.dtype, kernel_on(one.device, kernel), {})

    def of_parts(self, tensors: Iterable[Tensor]) -> Self:
        """As of ProgramOptimizer."""
        return type(self)(tensors, **self.defaults, kernel=self.kernel)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of torch.optim. Raises: BadConfig for the state of another optimizer or model."""
        check_saved(self, state_dict, STATE)
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        return step_each(self, closure, self._step)

    def _step(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        kept = gradient.clone(memory_format=torch.contiguous_format)
        way = self.direction(parameter, kept, group)
        ratio = trust(squares(parameter), squares(way))
        move(parameter, way, group, float(ratio))

    def direction(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> Tensor:
        """Add `gradient` to the moments of `parameter`, and overwrite it with the step of length 1
        of Adam, decay included. Element by element. Returns it."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in STATE:
                state[name] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        settings = {name: group[name] for name in ("eps", "weight_decay")}
        numbers = {"t": state["step"], "beta1": beta1, "beta2": beta2, **settings}
        kernel = kernel_on(parameter.device, self.kernel)
        flat_update(lamb_direction, parameter.dtype, kernel, {}).run(
            {
                "g": gradient.view(-1),
                "w": parameter.reshape(-1),
                "m": state["exp_avg"].view(-1),
                "v": state["exp_avg_sq"].view(-1),
                **{name: number(value) for name, value in numbers.items()},
            },
            gradient.view(-1),
        )
        return gradient


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
