"""Models whose layers look alike, and differ in what they do, or in what a model does with them."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from dlcp_client import spmd
from tests.spmd.layered_models import MESH, Layer, Layered


class Indexed(Layer):
    """The third layer is scaled."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = super().forward(x)
        return y * 2.0 if self.index == 2 else y * 1.0


class Called(Layer):
    """The number of calls so far counts."""

    calls: ClassVar[int] = 0

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        Called.calls += 1
        return super().forward(x) * float(Called.calls % 4)


class Counting(Layer):
    """Counts, which the model reads."""

    calls: ClassVar[list[int]] = []

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        self.calls.append(self.index)
        return super().forward(x)


class Counted(Layered):
    """Reads what its layers have counted."""

    def forward(self, x: Tensor) -> Any:
        Counting.calls.clear()
        return super().forward(x) * float(len(Counting.calls))


class Reversed(torch.autograd.Function):
    """The same values, and the gradient with another sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Reversing(Layer):
    """One layer has a function with a backward pass of its own."""

    def __init__(self, index: int, at: Sequence[int]) -> None:
        super().__init__(index)
        self.at = at

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = super().forward(x)
        apply: Any = Reversed.apply
        return apply(y) if self.index in self.at else y.view_as(y)


class Leaking(Layer):
    """Keeps a loss for the model."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = super().forward(x)
        self.loss = (y - x).abs().sum()
        return y


class WithLosses(Layered):
    """Adds the losses of the layers."""

    def forward(self, x: Tensor) -> Any:
        total = super().forward(x)
        for layer in self.layers:
            total = total + layer.loss
        return total


class Appending(Layer):
    """Appends a loss to an argument."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = super().forward(x)
        more[0].append((y - x).abs().sum())
        return y


class WithList(Layered):
    """Gives its layers a list."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        losses: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, losses)
        return (x * x).sum() + sum(losses)


class Closing(Layer):
    """Reads a tensor that nobody gave it."""

    outside: ClassVar[list[Tensor]] = []

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return super().forward(x) * self.outside[0]


class WithClosure(Layered):
    """Its layers read a tensor of the model."""

    def forward(self, x: Tensor) -> Any:
        Closing.outside[:] = [self.first.weight[0]]
        return super().forward(x)


class Changing(Layer):
    """Changes its operand in place."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = self.down(self.up(x + 1.0))
        x.mul_(0.5)
        return y


class WithChanges(Layered):
    """Reads operands after the layers."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        total = x.new_zeros(())
        for layer in self.layers:
            y = layer(x)
            total, x = total + x.sum(), y
        return total


class Viewing(Layer):
    """Returns its operand, the norm's result is lost."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        super().forward(x)
        return x.view(x.shape)


class Silent(Layer):
    """A part of the third layer has no gradient."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        with torch.no_grad() if self.index == 2 else nullcontext():
            y = self.norm(x)
        return x + self.down(self.up(y))


class Lower(Layer):
    """The third layer computes in bfloat16."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.index == 2):
            return x + self.down(self.up(x)).to(x.dtype)


class Packing(Layer):
    """One layer doubles what the backward pass reads."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        hooks = saved_tensors_hooks(lambda y: y * 2, lambda y: y)
        with hooks if self.index == 2 else nullcontext():
            return super().forward(x)


class Regional(Layer):
    """Has a manual region."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        rows = ("data", None, None)
        region = spmd.manual(torch.tanh, MESH, inputs=[rows], outputs=[rows])
        return x + region(super().forward(x))


class Frozen(Layered):
    """The third layer is called without autograd."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for at, layer in enumerate(self.layers):
            with torch.no_grad() if at == 2 else nullcontext():
                y = layer(x)
            x = x + y
        return (x * x).sum()


class Checkpointed(Layered):
    """Layers run again in the backward pass."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return (x * x).sum()


class Twice(Layered):
    """The first layer is called twice."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(self.layers[0](x))


class Inspecting(Layered):
    """Reads the class and an attribute of a layer, and a weight."""

    def forward(self, x: Tensor) -> Any:
        total = super().forward(x)
        for layer in self.layers:
            total = total * (2.0 if type(layer) is Layer and layer.index < 3 else 1.0)
        return total


class Decaying(Layered):
    """Adds the squares of the layers' weights."""

    def forward(self, x: Tensor) -> Any:
        weights = [layer.up.weight.square().sum() for layer in _each(self)]
        return super().forward(x) + sum(weights)


def _each(model: Layered) -> Any:
    return model.layers


class Subclass(Layer):
    """The same parameters, and another activation."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def tied() -> nn.Module:
    model = Layered(Layer)
    model.layers[3].up.weight = model.layers[1].up.weight  # type: ignore[union-attr]
    return model


def hooked(*, inside: bool) -> nn.Module:
    model = Layered(Layer)
    layer: Any = model.layers[2]
    (layer.norm if inside else layer).register_forward_hook(lambda _module, _given, y: y * 2)
    return model


def one_in_evaluation() -> nn.Module:
    model = Layered(lambda at: Layer(at, 0.3))
    model.layers[2].eval()
    return model


def frozen_weights() -> nn.Module:
    model = Layered(Layer)
    for one in (model.first, model.layers[0]):
        one.requires_grad_(False)
    return model
