"""Operations that only move elements: reshape, transpose, expand, concatenate, select."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from .call import Call
from .rule import ONE, Dims, Rule, Rules, dropped, named, rule, without

aten = torch.ops.aten


def common_factors(old: Sequence[int], new: Sequence[int]) -> tuple[Dims, Dims, dict[str, int]]:
    """Factors of both shapes of a reshape: (6, 4) -> (3, 8) is (a b, c) -> (a, b c).

    Dimensions whose rows do not divide one another, like (4, 6) -> (6, 4), have none.
    """
    dims: tuple[list[list[str]], list[list[str]]] = ([[] for _ in old], [[] for _ in new])
    sizes: dict[str, int] = {}
    if 0 in old:
        return ((),) * len(old), ((),) * len(new), {}
    for olds, news in _groups(old, new):
        pairs = _refined([old[at] for at in olds], [new[at] for at in news])
        for in_old, in_new, size in pairs or ():
            name = f"d{len(sizes)}"
            sizes[name] = size
            dims[0][olds[in_old]].append(name)
            dims[1][news[in_new]].append(name)
    return tuple(map(tuple, dims[0])), tuple(map(tuple, dims[1])), sizes


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions, of more than one row, with equal numbers of elements."""
    olds = [at for at, size in enumerate(old) if size > 1]
    news = [at for at, size in enumerate(new) if size > 1]
    found = []
    while olds:
        left, right = [olds.pop(0)], [news.pop(0)]
        a, b = old[left[0]], new[right[0]]
        while a != b:
            if a < b:
                left.append(olds.pop(0))
                a *= old[left[-1]]
            else:
                right.append(news.pop(0))
                b *= new[right[-1]]
        found.append((left, right))
    return found


def _refined(old: list[int], new: list[int]) -> list[tuple[int, int, int]] | None:
    """Common factors of a group: place in `old`, place in `new`, size. None: there are none."""
    found, i, j = [], 0, 0
    a, b = old[0], new[0]
    while True:
        if a % b and b % a:
            return None
        size = min(a, b)
        found.append((i, j, size))
        a, b = a // size, b // size
        if a == b == 1 and i + 1 == len(old):
            return found
        if a == 1:
            i += 1
            a = old[i]
        if b == 1:
            j += 1
            b = new[j]


def reshape(call: Call) -> Rule:
    """The common factors of both shapes; also of `squeeze`, which on shards would remove a
    dimension that has one row on a rank, and of `view`, for which shards may lie too far apart."""
    old, new, sizes = common_factors(call.first.shape, call.result.shape)
    return rule([old], [new], sizes, linear=ONE, passes=True, reshapes=True)


def _permuted(call: Call, order: Sequence[int]) -> Rule:
    dims, sizes = named(call.first.shape)
    return rule([dims], [tuple(dims[at] for at in order)], sizes, linear=ONE, passes=True)


def permute(call: Call) -> Rule:
    """Dimensions in another order."""
    return _permuted(call, [dim % call.first.dim() for dim in call.option("dims")])


def transpose(call: Call) -> Rule:
    """Two dimensions change places; `t` has no arguments."""
    dims = call.first.dim()
    order = list(range(dims))
    if call.target == aten.t.default:
        return _permuted(call, order[::-1])
    if dims:
        a, b = call.dim("dim0", dims), call.dim("dim1", dims)
        order[a], order[b] = order[b], order[a]
    return _permuted(call, order)


def expand(call: Call) -> Rule:
    """Dimensions of one row become longer: every shard has the row."""
    new, sizes = named(call.result.shape)
    skip = call.result.dim() - call.first.dim()
    old = tuple(
        new[skip + at] if size == call.result.shape[skip + at] else ()
        for at, size in enumerate(call.first.shape)
    )
    return rule([old], [new], sizes, linear=ONE, passes=True, shapes={1: 0})


def repeat(call: Call) -> Rule:
    """A dimension that is repeated stays whole."""
    new, sizes = named(call.result.shape)
    repeats = call.option("repeats")
    kept = tuple(dim if times == 1 else () for dim, times in zip(new, repeats, strict=True))
    return rule([kept[len(kept) - call.first.dim() :]], [kept], sizes, linear=ONE, passes=True)


def along(name: str, call: Call) -> Rule:
    """A part of one dimension, or its rows in another order: it stays whole."""
    return _whole_along(call, [call.dim(name, call.first.dim())])


def _whole_along(call: Call, which: Sequence[int]) -> Rule:
    dims, sizes = named(call.first.shape)
    kept = without(dims, which)
    results = [kept if one is not None else () for one in call.results]
    return rule([kept] * len(call.operands), results, sizes, linear=ONE, passes=True)


def triangle(call: Call) -> Rule:
    """The last two dimensions stay whole."""
    return _whole_along(call, [call.first.dim() - 2, call.first.dim() - 1])


def cat(call: Call) -> Rule:
    """Operands of the old form, one empty dimension, are left to torch as a whole."""
    dims, sizes = named(call.result.shape)
    kept = without(dims, [call.dim("dim", call.result.dim())])
    operands = [kept if one.dim() == len(kept) else ((),) for one in call.operands]
    return rule(operands, [kept], sizes, linear=_all(call), passes=True)


def stack(call: Call) -> Rule:
    """A new dimension, which stays whole."""
    dims, sizes = named(call.first.shape)
    at = call.dim("dim", call.first.dim() + 1)
    made = (*dims[:at], (), *dims[at:])
    return rule([dims] * len(call.operands), [made], sizes, linear=_all(call), passes=True)


def _all(call: Call) -> tuple[frozenset[int], ...]:
    return (frozenset(range(len(call.operands))),)


def select(call: Call) -> Rule:
    """One row of a dimension, which stays whole; `unbind`: every row."""
    at = [call.dim("dim", call.first.dim())]
    dims, sizes = named(call.first.shape)
    kept = dropped(dims, at)
    results = [kept] * len(call.results)
    return rule([without(dims, at)], results, sizes, linear=ONE, passes=True)


def select_backward(call: Call) -> Rule:
    """Zeros, with the gradient in one row."""
    at = [call.dim("dim", call.result.dim())]
    dims, sizes = named(call.result.shape)
    kept = without(dims, at)
    return rule([dropped(dims, at)], [kept], sizes, linear=ONE, passes=True, shapes={1: 0})


def view_as_real(call: Call) -> Rule:
    """A new dimension of both parts, which stays whole."""
    dims, sizes = named(call.first.shape)
    return rule([dims], [(*dims, ())], sizes, passes=True)


_of_dim: Callable[[Call], Rule] = partial(along, "dim")

RULES: Final[Rules] = {
    aten.view.default: reshape, aten._unsafe_view.default: reshape, aten.reshape.default: reshape,
    aten.unsqueeze.default: reshape, aten.squeeze.dim: reshape, aten.squeeze.dims: reshape,
    aten.squeeze.default: reshape,
    aten.t.default: transpose, aten.transpose.int: transpose, aten.permute.default: permute,
    aten.expand.default: expand, aten.repeat.default: repeat,
    aten.cat.default: cat, aten.stack.default: stack,
    aten.split.Tensor: _of_dim, aten.split_with_sizes.default: _of_dim,
    aten.unsafe_split.Tensor: _of_dim,
    aten.select.int: select, aten.unbind.int: select, aten.select_backward.default: select_backward,
    aten.view_as_real.default: view_as_real,
    aten.triu.default: triangle, aten.tril.default: triangle,
}  # fmt: skip
