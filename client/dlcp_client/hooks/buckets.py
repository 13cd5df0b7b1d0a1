"""The layout of a DDP bucket, and its division into pieces at parameter boundaries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket

from dlcp_client.hooks.exempt import gradient_ranges

PIECE: Final = 1 << 20  # bytes, about half a chunk: a smaller operation costs more than it carries
SMALL: Final = 1 << 16  # bytes; a smaller gradient joins its neighbour, whatever its class


@dataclass(frozen=True, slots=True)
class PlacedGradient:
    """A parameter's gradient in a bucket, [start, stop) in bytes."""

    parameter: nn.Parameter
    gradient: torch.Tensor  # a view of the bucket, with the strides that .grad will have
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.stop - self.start


def contents(bucket: GradBucket) -> list[PlacedGradient]:
    """The gradients in a bucket, in order. Computed at each call, because DDP regroups buckets."""
    pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
    full = [(parameter, gradient) for parameter, gradient in pairs if gradient.numel()]
    ranges = gradient_ranges(bucket.buffer(), [gradient for _, gradient in full])
    placed = [
        PlacedGradient(cast(nn.Parameter, parameter), as_kept(parameter, gradient), *where)
        for (parameter, gradient), where in zip(full, ranges, strict=True)
    ]
    return sorted(placed, key=lambda one: one.start)


def as_kept(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A view of the same bytes in their actual layout.

    DDP keeps the gradient of a dense parameter in the parameter's layout (such as channels_last),
    but `GradBucket.gradients` shows it as contiguous.
    """
    if parameter.is_contiguous():
        return gradient
    strides = parameter.stride()
    dense = torch.empty_like(parameter, device="meta").stride() == strides
    if not dense:
        return gradient
    return gradient.as_strided(parameter.shape, strides, gradient.storage_offset())


def cut(
    placed: Sequence[PlacedGradient], class_of: Callable[[nn.Parameter], str]
) -> list[list[PlacedGradient]]:
    """Runs of adjacent gradients, each to be averaged by one operation, in the bucket's order.

    A run ends when it has PIECE bytes, or before a parameter of another class. A gradient below
    SMALL joins any neighbour: a bias is not sent alone.
    """
    pieces: list[list[PlacedGradient]] = []
    size, traffic_class = 0, ""
    for one in placed:
        own = class_of(one.parameter)
        other = own != traffic_class and one.size >= SMALL and size >= SMALL
        if not pieces or size >= PIECE or other:
            pieces.append([])
            size = 0
        if not size or one.size >= SMALL:
            traffic_class = own
        pieces[-1].append(one)
        size += one.size
    if len(pieces) > 1 and size < SMALL:
        last = pieces.pop()
        pieces[-1] += last
    return pieces
