"""Samples of images at places of a grid, and windows as columns: images stay whole."""

from functools import partial
from typing import Final

import torch

from .call import Call
from .rule import ONE, Dims, Rule, Rules, named, rule

aten = torch.ops.aten


def _factors(call: Call) -> tuple[Dims, Dims, Dims, dict[str, int]]:
    """Of an image (n, c, ...), a grid (n, places..., 2), and the samples (n, c, places...)."""
    image, grid = (call.operands[call.names.index(name)].shape for name in ("input", "grid"))
    dims, sizes = named([*image[:2], *grid[1:-1]])
    n, c, *places = dims
    return (n, c, *((),) * len(places)), (n, *places, ()), dims, sizes


def sampled(call: Call) -> Rule:
    """A sample needs the whole image, and its own place."""
    image, grid, samples, sizes = _factors(call)
    return rule([image, grid], [samples], sizes, linear=ONE)


def sampled_backward(call: Call) -> Rule:
    """The gradient of the image is a sum over places, that of the grid over channels."""
    image, grid, samples, sizes = _factors(call)
    made = [
        dims if one is not None else ()
        for dims, one in zip([image, grid], call.results, strict=True)
    ]
    return rule([samples, image, grid], made, sizes, linear=ONE)


def images(space: int, call: Call) -> Rule:
    """The last dimensions stay whole. The third operand is an index."""
    dims, sizes = named(call.first.shape[: call.first.dim() - space])
    given, made = (
        [() if one is None else dims + ((),) * space for one in several]
        for several in (call.operands, call.results)
    )
    return rule(given, made, sizes, zeroed=frozenset({2}))


RULES: Final[Rules] = {
    aten.grid_sampler_2d.default: sampled, aten.grid_sampler_2d_backward.default: sampled_backward,
    aten.grid_sampler_3d.default: sampled, aten.grid_sampler_3d_backward.default: sampled_backward,
    aten.adaptive_max_pool2d.default: partial(images, 2),
    aten.adaptive_max_pool2d_backward.default: partial(images, 2),
    aten.adaptive_max_pool3d.default: partial(images, 3),
    aten.adaptive_max_pool3d_backward.default: partial(images, 3),
}  # fmt: skip
