"""Convolutions of 1 to 3 dimensions, also transposed: batch, channels and space may be divided."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from dlcp_client.spmd.windows import Window

from .call import Call
from .rule import ONE, Dims, Edit, Halo, Rule, Rules, rule

aten = torch.ops.aten
BOTH: Final = (frozenset({0}), frozenset({1}))  # linear in each operand


def _listed(call: Call, name: str, dims: int) -> list[int]:
    """An argument per dimension of space; one number stands for all."""
    given: list[int] = list(call.option(name))
    return given * dims if len(given) == 1 else given


def _dims(call: Call, x: torch.Tensor, weight: torch.Tensor) -> tuple[Dims, Dims, Dims]:
    """Factors of operand, weight and result. Channels of several groups stay whole."""
    grouped = call.option("groups") != 1
    out = weight.shape[1] if call.option("transposed") else weight.shape[0]
    c: Any = ("c",) if x.shape[1] > 1 and not grouped else ()
    o: Any = ("o",) if out > 1 and not grouped else ()
    n: Any = ("n",) if x.shape[0] > 1 else ()
    space = tuple((f"s{at}",) for at in range(x.dim() - 2))
    kernel = ((),) * len(space)
    matrix = (c, o) if call.option("transposed") else (o, c)
    return (n, c, *space), (*matrix, *kernel), (n, o, *space)


def _halos(
    call: Call, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, place: Callable[..., Halo]
) -> dict[str, Halo]:
    """Per dimension of space. The smaller tensor, the result, or the operand of a transposed one,
    is the anchor; `place` says which tensors are windows."""
    dims = x.dim() - 2
    small, large = (x, y) if call.option("transposed") else (y, x)
    stride, padding, dilation = (
        _listed(call, name, dims) for name in ("stride", "padding", "dilation")
    )
    found = {}
    for at in range(dims):
        reach = (weight.shape[2 + at] - 1) * dilation[at] + 1
        rows = large.shape[2 + at], small.shape[2 + at]
        window = Window(rows[0], stride[at], -padding[at], reach, rows[1], dilation=dilation[at])
        found[f"s{at}"] = place(window=window, edits=_unpadded(call, at))
    return found


def _unpadded(call: Call, at: int) -> tuple[Edit, ...]:
    """A window has the padding already."""
    names = [one.name for one in call.target._schema.arguments]
    return tuple(Edit(names.index(name), at, 0) for name in ("padding", "output_padding"))


def _sizes(dims: Dims, x: torch.Tensor, of: torch.Tensor, anchor: torch.Tensor) -> dict[str, int]:
    """`dims`: of the operand; sizes of space are those of the anchor."""
    sizes = {"n": x.shape[0], "c": x.shape[1], "o": of.shape[1]}
    return sizes | {f"s{at}": anchor.shape[2 + at] for at in range(x.dim() - 2)}


def convolution(call: Call) -> Rule | None:
    """(n, c, s...), (o, c, k...) -> (n, o, s...). None with a bias, which `capture` adds apart:
    each rank would add it to its partial sum."""
    if len(call.operands) != 2:
        return None
    x, weight = call.operands
    y, transposed = call.result, call.option("transposed")
    of_x, of_weight, of_y = _dims(call, x, weight)

    def place(**known: Any) -> Halo:
        one = frozenset({0})
        return Halo(adds=one, **known) if transposed else Halo(reads=one, **known)

    halos = _halos(call, x, weight, y, place)
    sizes = _sizes(of_x, x, y, x if transposed else y)
    return rule([of_x, of_weight], [of_y], sizes, linear=BOTH, halos=halos)


def convolution_backward(call: Call) -> Rule | None:
    """The gradients of operand and weight; the first is a sum over output channels, the other over
    batch and space. That of a bias is a sum of its own, see `capture`."""
    if call.results[2] is not None:
        return None
    gradient, x, weight = call.operands
    transposed = call.option("transposed")
    of_x, of_weight, of_y = _dims(call, x, weight)

    def place(**known: Any) -> Halo:
        if transposed:
            return Halo(reads=frozenset({0}), **known)
        return Halo(reads=frozenset({1}), adds=frozenset({0}), **known)

    halos = _halos(call, x, weight, gradient, place)
    sizes = _sizes(of_x, x, gradient, x if transposed else gradient)
    made = [of_x, of_weight, ()]
    results = [d if one is not None else () for d, one in zip(made, call.results, strict=True)]
    found = rule([of_y, of_x, of_weight], results, sizes)
    places = frozenset({"n", *halos}) & found.sizes.keys()
    return replace(
        found,
        summed=(frozenset({"o"}) & found.sizes.keys(), places, frozenset()),
        linear=ONE,
        halos=halos,
    )


RULES: Final[Rules] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
