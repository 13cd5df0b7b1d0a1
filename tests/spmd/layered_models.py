"""Models with layers that are alike."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dlcp_client import spmd

MESH = spmd.mesh(data=2, model=2)
WIDTH = 6
LAYERS = 5


class Layer(nn.Module):
    """A residual branch with a norm, as in transformers. `index` is not used here."""

    def __init__(self, index: int = 0, dropped: float = 0.0) -> None:
        super().__init__()
        self.index, self.dropped = index, dropped
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        y = self.down(F.gelu(self.up(self.norm(x))))
        return x + F.dropout(y, self.dropped, self.training)


class Layered(nn.Module):
    """Layers one after another."""

    def __init__(self, layer: Callable[[int], nn.Module], layers: int = LAYERS) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(layer(at) for at in range(layers))

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return (x * x).sum()


class Masked(Layer):
    """Two operands, one by its name, and a constant."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return super().forward(x * named["mask"]) * more[0]


class WithMask(Layered):
    """Gives all layers one mask."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        mask = (x > 0).to(x.dtype)
        for layer in self.layers:
            x = layer(x, 0.5, mask=mask)
        return (x * x).sum()


class Pair(Layer):
    """Several results, of which one needs no gradient, and None."""

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return super().forward(x), {"largest": x.argmax(-1), "cache": None}


class WithPairs(Layered):
    """Uses the results of some layers only."""

    def forward(self, x: Tensor) -> Any:
        x, total = self.first(x), 0
        for at, layer in enumerate(self.layers):
            x, more = layer(x)
            total = total + more["largest"].sum() if at % 2 else total
        return (x * x).sum() * total


class Normed(Layer):
    """A norm with running statistics."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.statistics = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return self.statistics(super().forward(x).flatten(0, 1)).view_as(x)


class Attending(nn.Module):
    """Attention by torch, whose kernel may be that of one layer only."""

    def __init__(self, index: int, math_at: int = -1) -> None:
        super().__init__()
        self.qkv, self.is_math = nn.Linear(WIDTH, 3 * WIDTH), index == math_at

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        with sdpa_kernel(SDPBackend.MATH) if self.is_math else nullcontext():
            return x + F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)


class AttendingLayer(nn.Sequential):
    """It has a child, as layers have."""

    def __init__(self, index: int, math_at: int = -1) -> None:
        super().__init__(Attending(index, math_at))


class Pooled(Layered):
    """The gradient of the last layer's result is an expanded number."""

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x.mean()


class Skipping(Layered):
    """A layer's result is used by others than the next one."""

    def forward(self, x: Tensor) -> Any:
        kept = [self.first(x)]
        for layer in self.layers:
            kept.append(layer(kept[-1]))
        return (kept[-1] * kept[1]).sum() + kept[2].sum()


class WithRegion(Layered):
    """Has a manual region behind its layers."""

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        rows = ("data", None, None)
        region = spmd.manual(torch.tanh, MESH, inputs=[rows], outputs=[rows])
        return region(self.first(x)).sum()


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.1, batch_first=True)
    return Reduced(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))


class Reduced(nn.Module):
    """A number of a model's result."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = (self.model(x) ** 2).sum()
        return total


def other_values() -> nn.Module:
    model = Layered(Normed)
    for at, layer in enumerate(model.layers):
        layer.statistics.running_mean.fill_(at)  # type: ignore[union-attr,operator]
    return model
