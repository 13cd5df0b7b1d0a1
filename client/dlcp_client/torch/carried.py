"""Gradients that a checkpoint holds, or that came of making one: they go into the next step."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from dlcp_client.torch.buckets import Placed
from dlcpd.contract.errors import BadConfig


class Carried:
    """By parameter, averages over the ranks: every rank adds them to its own gradient once."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._held: dict[str, torch.Tensor] = {}
        self.scale = 1.0  # of the loss, which they carry

    def take(self, parts: Iterable[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """More of them, at the present scale; what is all zeros is left out."""
        for parameter, part in parts:
            if not bool(part.any()):
                continue
            name = self._names[id(parameter)]
            held = self._held.get(name)
            self._held[name] = part.clone() if held is None else held + part

    def named(self) -> dict[str, torch.Tensor]:
        """A copy, for a checkpoint."""
        return {name: tensor.clone() for name, tensor in self._held.items()}

    def load(self, held: Mapping[str, torch.Tensor], scale: float) -> None:
        """Raises: BadConfig for what is not of this model."""
        for name, tensor in held.items():
            known = self._parameters.get(name)
            if known is None or known.shape != tensor.shape:
                raise BadConfig(
                    f"load_state_dict: this model has no parameter {name} of shape "
                    f"{tuple(tensor.shape)}; load the state of the same model"
                )
        self._held = {name: tensor.clone() for name, tensor in held.items()}
        self.scale = scale

    def rescale(self, scale: float) -> None:
        """From now on the loss has another scale."""
        if scale != self.scale:
            for tensor in self._held.values():
                tensor.mul_(scale / self.scale)
            self.scale = scale

    @torch.no_grad()
    def add_to(self, placed: Iterable[Placed]) -> None:
        """Add what there is for these gradients, and hold it no more."""
        for one in placed:
            tensor: Any = self._held.pop(self._names[id(one.parameter)], None)
            if tensor is not None:
                one.gradient.add_(tensor)

    def __bool__(self) -> bool:
        return bool(self._held)
