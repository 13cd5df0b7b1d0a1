"""Gradients from a checkpoint, or from making one, that are added to the next step."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from dlcpd.contract.errors import BadConfig


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as float32, or a wider float dtype."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def add_within(gradient: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """gradient += more, as far as it fits; returns the rest. Non-finite values stay."""
    top = torch.finfo(gradient.dtype).max
    given = gradient.to(more.dtype)
    total = given + more
    number = torch.isfinite(given)
    clipped = number & ~(total.abs() <= top)
    into = total.clamp(-top, top).to(gradient.dtype)
    rest = (given - into) + more  # in this order: a sum beyond the range has no rest
    if gradient.dtype == more.dtype:
        rest = torch.where(clipped, rest, 0)  # rounded, as all sums of this dtype
    gradient.copy_(torch.where(number, into, gradient))
    return torch.where(number, rest, more)


class ResumedGradients:
    """Averages over the ranks, by parameter. Every rank adds them to its own gradient, as far as
    they fit, and the rest to its next one. In float32, or float64 for float64."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._held: dict[str, torch.Tensor] = {}
        self.scale = 1.0  # loss scale of the values

    def take(self, parts: Iterable[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """Add values at the present scale; tensors of zeros are skipped."""
        for parameter, values in parts:
            if not bool(values.any()):
                continue
            name, part = self._names[id(parameter)], wide(values)
            held = self._held.get(name)
            self._held[name] = part.clone() if held is None else held + part

    def named(self) -> dict[str, torch.Tensor]:
        """A copy, for a checkpoint."""
        return {name: tensor.clone() for name, tensor in self._held.items()}

    def load(self, held: Mapping[str, torch.Tensor], scale: float) -> None:
        """Replace the held values. Raises: BadConfig for values of another model."""
        for name, tensor in held.items():
            known = self._parameters.get(name)
            if known is None or known.shape != tensor.shape:
                raise BadConfig(
                    f"load_state_dict: this model has no parameter {name} of shape "
                    f"{tuple(tensor.shape)}; load the state of the same model"
                )
        self._held = {name: wide(tensor).clone() for name, tensor in held.items()}
        self.scale = scale

    def rescale(self, scale: float) -> None:
        """Convert the held values to another loss scale."""
        if scale != self.scale:
            for tensor in self._held.values():
                tensor.mul_(scale / self.scale)
            self.scale = scale

    @torch.no_grad()
    def add_to(self, parts: Iterable[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """Add the held values to these gradients, and keep only the rest."""
        for parameter, gradient in parts:
            name = self._names[id(parameter)]
            held = self._held.pop(name, None)
            if held is not None and bool((rest := add_within(gradient, held)).any()):
                self._held[name] = rest

    def __bool__(self) -> bool:
        return bool(self._held)
