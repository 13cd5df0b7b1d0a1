"""Models as one writes them for one device, each with a loss."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Two layers of 22 and 5 outputs, which no small mesh divides evenly."""

    def __init__(self, inputs: int = 13, hidden: int = 22) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(inputs, hidden), nn.Linear(hidden, 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.down(torch.tanh(self.up(x))), target)


def unmarked(x: Tensor) -> Tensor:
    return x


class Block(nn.Module):
    """`mark` is for the sum of both branches, which may be annotated."""

    def __init__(self, width: int, heads: int, mark: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.heads, self.mark = heads, mark
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        y = self.before_attention(x)
        q, k, v = (
            part(y).view(batch, positions, self.heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.mark(x + self.o(found.transpose(1, 2).reshape(batch, positions, width)))
        y = F.gelu(self.up(self.before_mlp(x)))
        return self.mark(x + self.down(y))


class GPT(nn.Module):
    """A transformer of the form of GPT-2, with tied embeddings."""

    def __init__(
        self,
        width: int = 32,
        vocabulary: int = 50,
        layers: int = 2,
        positions: int = 8,
        *,
        heads: int = 4,
        mark: Callable[[Tensor], Tensor] = unmarked,
    ) -> None:
        super().__init__()
        self.mark = mark
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(positions, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, mark) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.mark(self.tokens(tokens) + self.positions)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.last(x)).flatten(0, 1), target.flatten())


TENSOR_PARALLEL = {
    "*.[qkv].weight": ("model", None), "*.o.weight": (None, "model"),
    "*.up.weight": ("model", None), "*.down.weight": (None, "model"),
}  # fmt: skip


class Convolutions(nn.Module):
    """Two layers with batch norm, the second with a stride, and a maximum between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 5, 2, padding=2)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(6, 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, stride=1, padding=1)
        return F.cross_entropy(self.last(torch.tanh(self.second(x)).mean((2, 3))), target)


def convolutions(width: int = 17) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    x, target = torch.randn(3, 2, 12, width).double(), torch.randint(0, 5, (3,))
    return Convolutions().double(), (x, target)


def perceptron(batch: int = 7) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model = Perceptron().double()
    return model, (torch.randn(batch, 13).double(), torch.randint(0, 5, (batch,)))


def gpt(
    batch: int = 4, mark: Callable[[Tensor], Tensor] = unmarked
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model = GPT(mark=mark).double()
    return model, tuple(torch.randint(0, 50, (batch, 8)) for _ in range(2))
