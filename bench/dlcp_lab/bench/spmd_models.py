"""The models of `bench spmd`, written for one device, and how a user divides them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH: Final = 256
HEAD: Final = 64  # features of an attention head
WORDS: Final = 1000
BATCH: Final = 8
POSITIONS: Final = 64
IMAGE: Final = (2, 3, 192, 384)
CHANNELS: Final = (3, 16, 32, 32)

TENSOR_PARALLEL: Final = {
    "*.[qkv].weight": ("all", None),
    "*.o.weight": (None, "all"),
    "*.up.weight": ("all", None),
    "*.down.weight": (None, "all"),
}


class TransformerLayer(nn.Module):
    """A layer of a transformer: attention, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        parts = (part(y) for part in (self.q, self.k, self.v))
        q, k, v = (part.view(*part.shape[:2], -1, HEAD).transpose(1, 2) for part in parts)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(found.transpose(1, 2).flatten(2))
        down: Tensor = self.down(F.gelu(self.up(self.second(x))))
        return x + down


class GPT(nn.Module):
    """The loss of the next word."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(TransformerLayer() for _ in range(layers)))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor, target: Tensor) -> Tensor:
        x = self.words(words) + self.places.weight
        return F.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), target.flatten())


def unchanged(_number: int, operation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """One device: the operation alone."""
    return operation(x)


class Images(nn.Module):
    """Convolutions with padding and a pool after each. `around`: what a rank does before and after
    an operation on neighbours; it gets the operation's number, the operation and its input."""

    def __init__(
        self, around: Callable[[int, Callable[[Tensor], Tensor], Tensor], Tensor] = unchanged
    ) -> None:
        super().__init__()
        layers = (nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(CHANNELS))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Conv2d(CHANNELS[-1], 5, 1)
        self.around = around

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """`target`: a class for each pixel."""
        for at, layer in enumerate(self.layers):
            x = F.relu(self.around(2 * at, layer, x))
            x = self.around(2 * at + 1, lambda y: F.max_pool2d(y, 3, 1, 1), x)
        return F.cross_entropy(self.head(x), target)


def words() -> tuple[Tensor, Tensor]:
    """A batch of the transformer, the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    first, second = (
        torch.randint(0, WORDS, (BATCH, POSITIONS), generator=generator) for _ in range(2)
    )
    return first, second


def images() -> tuple[Tensor, Tensor]:
    """A batch of images."""
    generator = torch.Generator().manual_seed(1)
    count, _, *space = IMAGE
    target = torch.randint(0, 5, (count, *space), generator=generator)
    return torch.randn(IMAGE, generator=generator), target
