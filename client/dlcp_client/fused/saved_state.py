"""Checks of an optimizer's saved state, in torch's format."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from dlcpd.contract.errors import BadConfig


def numbered(optimizer: Optimizer, saved: Any) -> Iterator[tuple[int, nn.Parameter]]:
    """The number of each parameter in torch's format: groups and parameters in their order.

    Raises: BadConfig if `saved` is not a state_dict.
    """
    known = isinstance(saved, Mapping) and {"state", "param_groups"} <= saved.keys()
    if not known or not isinstance(saved["state"], Mapping):
        raise BadConfig(
            "this is not the state_dict of an optimizer: it needs `state` and `param_groups`"
        )
    numbers = chain.from_iterable(group["params"] for group in saved["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    return zip(numbers, parameters, strict=False)  # torch refuses groups of other lengths


def check_state(parameter: Tensor, state: Any, names: Sequence[str], *, counts: bool) -> None:
    """Raises: BadConfig unless the saved state of a parameter has `names`, and, if the optimizer
    counts them, the number of steps."""
    found = state if isinstance(state, Mapping) else {}
    step = found.get("step")
    one = isinstance(step, Real) or (isinstance(step, Tensor) and step.numel() == 1)
    values = [found.get(name) for name in names]
    fits = [isinstance(x, Tensor) and x.shape == parameter.shape and not x.is_meta for x in values]
    if not all(fits) or (counts and not one):
        raise BadConfig(
            f"this state_dict is not of such an optimizer and model: a parameter of shape "
            f"{tuple(parameter.shape)} needs {', '.join(names)} of that shape"
            f"{', and a number `step`' if counts else ''}"
        )


def check_saved(optimizer: Optimizer, saved: Any, names: Sequence[str]) -> None:
    """Raises: BadConfig unless each parameter that has a state has all of it."""
    for at, parameter in numbered(optimizer, saved):
        if state := saved["state"].get(at):
            check_state(parameter, state, names, counts=True)
