"""Operations along a dimension that ranks divide, and the rows that they need of other ranks."""

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RANKS: Final = 3
WIDTHS: Final = (7, 17, 22)
# The list that docs/spmd.md shows beside DTensor; the others are compared in one process only.
LISTED: Final = (
    "kernel 3", "kernel 5", "stride 2", "kernel 5, stride 2", "dilation 2", "max pool 3",
    "max pool 3, stride 2", "average pool", "pad", "slice", "roll", "flip", "unfold",
)  # fmt: skip


class Of(nn.Module):
    """tanh before and after, so that gradients pass; a weight before."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.ones((), dtype=torch.double))
        self.weights = nn.ParameterList(torch.randn(one).double() for one in shapes)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        y = self.function(torch.tanh(x * self.scale), *self.weights)
        return (torch.tanh(y) ** 2).sum()


def convolved(**options: Any) -> Callable[..., Tensor]:
    return lambda x, w, b=None: F.conv2d(x, w, b, **options)


CASES: Final[dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]]] = {
    "kernel 3": (convolved(padding=1), [(4, 2, 3, 3), (4,)]),
    "kernel 5": (convolved(padding=2), [(4, 2, 5, 5), (4,)]),
    "kernel 4, padding 2": (convolved(padding=2), [(4, 2, 4, 4)]),
    "stride 2": (convolved(padding=1, stride=2), [(4, 2, 3, 3), (4,)]),
    "kernel 5, stride 2": (convolved(padding=2, stride=2), [(4, 2, 5, 5)]),
    "kernel 1, stride 2": (convolved(stride=2), [(4, 2, 1, 1)]),
    "dilation 2": (convolved(padding=2, dilation=2), [(4, 2, 3, 3), (4,)]),
    "no padding": (convolved(), [(4, 2, 3, 3)]),
    "groups": (convolved(padding=1, groups=2), [(4, 1, 3, 3), (4,)]),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, padding=1), [(2, 4, 3, 3), (4,)]),
    "transposed, stride 2": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        [(2, 1, 3, 3)],
    ),
    "max pool 3": (lambda x: F.max_pool2d(x, 3, 1, 1), []),
    "max pool 3, stride 2": (lambda x: F.max_pool2d(x, 3, 2, 1), []),
    "max pool 2": (lambda x: F.max_pool2d(x, 2), []),
    "max pool, dilation 2, ceil": (
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True), []
    ),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), []),
    "slice": (lambda x: x[..., 1:6], []),
    "slice by 2": (lambda x: x[..., 1::2], []),
    "pad": (lambda x: F.pad(x, (2, 1)), []),
    "pad with ones": (lambda x: F.pad(x, (2, 1, 1, 1), value=1.0), []),
    "cut by padding": (lambda x: F.pad(x, (-2, -1)), []),
    "roll": (lambda x: x.roll(2, -1) * x, []),
    "roll backwards": (lambda x: x.roll((1, -1), (-1, -2)), []),
    "flip": (lambda x: x.flip(-1) * x, []),
    "unfold": (lambda x: x.unfold(-1, 3, 1), []),
    "unfold by 2": (lambda x: x.unfold(-1, 3, 2), []),
}  # fmt: skip


def halo_rows(function: Callable[..., Tensor], shapes: Any, x: Tensor) -> int:
    """Of all ranks: rows of x on which a rank's shard of the result depends, but not its own."""
    weights = [torch.ones(one).double() for one in shapes]
    before = function(torch.ones_like(x), *weights)
    rows, own = -(-before.shape[3] // RANKS), -(-x.shape[3] // RANKS)
    found = 0
    for row in range(x.shape[3]):
        one = torch.ones_like(x)
        one[..., row] = 2
        changed = (function(one, *weights) != before).transpose(0, 3).flatten(1).any(1)
        readers = {int(at) // rows for at in changed.nonzero()}
        found += len(readers - {row // own})
    return found
