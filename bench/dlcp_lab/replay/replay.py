"""A network that waits instead of computing, with gradients of the real sizes."""

import time
from typing import Any, Final

import torch
from torch import nn

from dlcp_lab.replay.pace import Pace
from dlcp_lab.replay.shapes import Network

GRADIENT: Final = 1e-3  # every element on rank 0; rank r has r + 1 times as much


class SleepClock:
    """Sleeps, and subtracts the excess of each sleep from the next one: layers are short."""

    def __init__(self) -> None:
        self._late = 0.0  # seconds

    def wait(self, seconds: float) -> None:
        """Computation of a layer. Waits for gradients do not count and are not compensated."""
        wanted = seconds - self._late
        begin = time.perf_counter()
        if wanted > 0:
            time.sleep(wanted)
        self._late = time.perf_counter() - begin - wanted


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, signal: torch.Tensor, layer: "Waiting", *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.layer, ctx.shapes = layer, [parameter.shape for parameter in parameters]
        layer.clock.wait(layer.pace.forward)
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        layer = ctx.layer
        layer.clock.wait(layer.pace.backward)
        return gradients[0], None, *(torch.full(shape, layer.gradient) for shape in ctx.shapes)


class Waiting(nn.Module):
    """One layer: its parameters, and the time that it would compute."""

    def __init__(self, parameters: list[nn.Parameter], pace: Pace, clock: SleepClock) -> None:
        nn.Module.__init__(self)  # not the next class's: an embedding would make a table
        for number, parameter in enumerate(parameters):
            self.register_parameter(f"p{number}", parameter)
        self.pace, self.clock, self.gradient = pace, clock, GRADIENT

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """The signal, unchanged, after the time of the forward pass."""
        values = self._parameters.values()
        out: torch.Tensor = _Wait.apply(signal, self, *values)  # type: ignore[no-untyped-call]  # torch's own
        return out


class WaitingTable(Waiting, nn.Embedding):
    """An embedding, so that a bounded policy protects its gradients as it does a real one's."""

    sparse = False


def replayed(network: Network, found: list[Pace], rank: int) -> nn.Sequential:
    """A model to train; it returns its input, any scalar, unchanged."""
    clock, layers, first = SleepClock(), [], {}
    for layer, pace in zip(network, found, strict=True):
        own = [nn.Parameter(torch.ones(shape)) for shape in layer.shapes]
        if own:
            first[layer.name] = own[0]
        if layer.tied_to:
            own = [first[layer.tied_to]]
        made = (WaitingTable if layer.lookup else Waiting)(own, pace, clock)
        made.gradient = GRADIENT * (rank + 1)
        layers.append(made)
    return nn.Sequential(*layers)
