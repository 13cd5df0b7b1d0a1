"""Larger models: images, volumes, experts, a pipeline, a convolutional transformer."""

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """A block of ResNet-18; with a stride, the shortcut has a convolution of its own."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """The form of ResNet-18, with fewer channels."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        sizes = [width, width, 2 * width, 4 * width]
        self.blocks = nn.ModuleList(Residual(a, b, 1 + (a != b)) for a, b in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), target)


class UNet(nn.Module):
    """Three dimensions, one step down and up, and a concatenation of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Conv3d(2, 4, 3, padding=1)
        self.below = nn.Conv3d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose3d(8, 4, 2, stride=2)
        self.last = nn.Conv3d(8, 2, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = F.relu(self.norm(self.inside(x)))
        y = self.up(F.relu(self.below(F.max_pool3d(x, 2))))
        return F.cross_entropy(self.last(torch.cat([x, y], 1)), target)


class Experts(nn.Module):
    """Each token goes to its best expert, by dispatch masks: groups, tokens, experts, places.
    `mark` is for the tokens by expert, which may be annotated."""

    def __init__(
        self, mark: Callable[[Tensor], Tensor], width: int = 16, experts: int = 4, hidden: int = 256
    ) -> None:
        super().__init__()
        self.mark = mark
        self.places: Tensor  # of an expert, per group
        self.register_buffer("places", torch.arange(16))
        self.scale = nn.Parameter(torch.ones(width))
        self.gate = nn.Parameter(torch.randn(width, experts))
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / 4)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / 8)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = x * self.scale
        chances = torch.softmax(x @ self.gate, -1)
        best = F.one_hot(chances.argmax(-1), chances.shape[-1]).to(x.dtype)
        place = torch.cumsum(best, 1) - 1
        send = best.unsqueeze(-1) * (place.unsqueeze(-1) == self.places)
        given = self.mark(torch.einsum("gsec,gsd->egcd", send, x))
        made = torch.einsum("egcd,edh->egch", given, self.up).relu()
        made = self.mark(torch.einsum("egch,ehd->egcd", made, self.down))
        y = torch.einsum("gsec,egcd->gsd", send * chances.unsqueeze(-1), made)
        return F.mse_loss(y, target)


class Pipeline(nn.Module):
    """Stages are a dimension; in each step, what they hold moves on by one."""

    def __init__(self, stages: int = 4, width: int = 8) -> None:
        super().__init__()
        self.stages = stages
        self.weights = nn.Parameter(torch.randn(stages, width, width) / width**0.5)
        self.first: Tensor
        self.last: Tensor
        stage = torch.arange(stages).view(-1, 1, 1)
        self.register_buffer("first", stage == 0)
        self.register_buffer("last", stage == stages - 1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        parts, batch, width = x.shape
        held = x.new_zeros(self.stages, batch, width)
        found = []
        for step in range(parts + self.stages - 1):
            held = torch.where(self.first, x[min(step, parts - 1)], held.roll(1, 0))
            held = torch.tanh(torch.bmm(held, self.weights))
            if step >= self.stages - 1:
                found.append((held * self.last).sum(0))  # held[-1], without a gather
        return F.mse_loss(torch.stack(found), target)


class Conformer(nn.Module):
    """Attention, and a convolution in time with a gate."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate = nn.Conv1d(width, 2 * width, 1)
        self.time = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.batch = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unsqueeze(1).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        y = F.glu(self.gate(x.transpose(1, 2)), 1)
        y = F.silu(self.batch(self.time(y))).transpose(1, 2)
        return F.mse_loss(self.last(x + y), target)
