"""Embedding, gather, scatter and selection by an index tensor."""

from typing import Final

import torch

from .call import Call
from .rule import ONE, Dims, Rule, Rules, named, rule, without

aten = torch.ops.aten
INDEX: Final = frozenset({1})  # the second operand


def embedding(call: Call) -> Rule:
    """(vocabulary, z), (...) -> (..., z): the vocabulary stays whole."""
    index, sizes = named(call.operands[1].shape)
    z = call.first.shape[1]
    last = (("z",),) if z > 1 else ((),)
    return rule([((), *last), index], [index + last], sizes | {"z": z}, linear=ONE, zeroed=INDEX)


def embedding_backward(call: Call) -> Rule | None:
    """The gradient of the table is a sum over all places of the index. None: it is divided by how
    often an index occurs, which no rank can tell from its shard."""
    if call.option("scale_grad_by_freq"):
        return None
    index, sizes = named(call.operands[1].shape)
    z = call.first.shape[-1]
    last = (("z",),) if z > 1 else ((),)
    return rule([index + last, index], [((), *last)], sizes | {"z": z}, linear=ONE, zeroed=INDEX)


def gather(call: Call) -> Rule | None:
    """Along one dimension, which stays whole. None: the index is shorter in another one."""
    return _along_index(call, linear=ONE)


def scatter(call: Call) -> Rule | None:
    """Likewise. Where indices repeat, the last value wins, as on one device."""
    return _along_index(call)


def scatter_add(call: Call) -> Rule | None:
    """Likewise. Linear in the operand and the source together."""
    return _along_index(call, linear=(frozenset({0, 2}),))


def _along_index(call: Call, linear: tuple[frozenset[int], ...] = ()) -> Rule | None:
    at = call.dim("dim", call.first.dim())
    shapes = [[n for dim, n in enumerate(one.shape) if dim != at] for one in call.operands]
    if any(shape != shapes[0] for shape in shapes) or any(
        one.dim() != call.first.dim() for one in call.operands
    ):
        return None  # also a number with an index of one dimension
    dims, sizes = named(call.first.shape)
    kept = without(dims, [at])
    operands = [kept] * len(call.operands)
    return rule(operands, [kept], sizes, linear=linear, passes=True, zeroed=INDEX)


def index_select(call: Call) -> Rule | None:
    """The rows of one dimension, by an index of one dimension. None: of a number."""
    if not call.first.dim():
        return None
    at = call.dim("dim", call.first.dim())
    dims, sizes = named(call.first.shape)
    index, more = named(call.operands[1].shape, "i")
    kept = without(dims, [at])
    made = (*kept[:at], *index, *kept[at + 1 :])
    sizes |= more
    return rule([kept, index], [made], sizes, linear=ONE, zeroed=INDEX)


def index_add(call: Call) -> Rule | None:
    """Adds rows to the rows that an index names: the index and its dimension stay whole. None: to a
    number."""
    if not call.first.dim():
        return None
    kept, sizes = _whole_along(call)
    together = (frozenset({0, 2}),)
    return rule([kept, ((),), kept], [kept], sizes, linear=together, passes=True, zeroed=INDEX)


def index_copy(call: Call) -> Rule | None:
    """Likewise, but the rows become others: with equal indices, as on one device."""
    if not call.first.dim() or call.operands[2].dim() != call.first.dim():
        return None
    kept, sizes = _whole_along(call)
    return rule([kept, ((),), kept], [kept], sizes, passes=True, zeroed=INDEX)


def index_fill(call: Call) -> Rule | None:
    """Likewise, and all equal a number, which may be a tensor."""
    if not call.first.dim():
        return None
    kept, sizes = _whole_along(call)
    number = [()] * (len(call.operands) - 2)
    index = ((),) * call.operands[1].dim()
    return rule([kept, index, *number], [kept], sizes, passes=True, zeroed=INDEX)


def _whole_along(call: Call) -> tuple[Dims, dict[str, int]]:
    dims, sizes = named(call.first.shape)
    return without(dims, [call.dim("dim", call.first.dim())]), sizes


def index(call: Call) -> Rule | None:
    """Dimensions without an index may be divided, if those with one are neighbours."""
    found = _indexed(call, call.first.shape)
    if found is None:
        return None
    kept, made, sizes = found
    wholes = [((),) * one.dim() for one in call.operands[1:]]
    return rule([kept, *wholes], [made], sizes, linear=ONE, passes=True)


def index_put(call: Call) -> Rule | None:
    """Likewise. Linear in both tensors where values are added."""
    found = _indexed(call, call.first.shape)
    values = call.operands[-1]
    if found is None or values.dim() != len(found[1]):
        return None
    kept, made, sizes = found
    wholes = [((),) * one.dim() for one in call.operands[1:-1]]
    last = tuple(dim if size > 1 else () for dim, size in zip(made, values.shape, strict=True))
    ends = frozenset({0, len(call.operands) - 1})
    linear = (ends,) if call.option("accumulate") else ()
    return rule([kept, *wholes, last], [kept], sizes, linear=linear, passes=True)


def _indexed(call: Call, shape: torch.Size) -> tuple[Dims, Dims, dict[str, int]] | None:
    """Factors of a tensor, and of the tensor of its indexed rows."""
    given = call.option("indices")
    which = [at for at, one in enumerate(given) if one is not None]
    indices = [
        one for one, name in zip(call.operands, call.names, strict=True) if name == "indices"
    ]
    masks = any(one.dtype in (torch.bool, torch.uint8) for one in indices)
    if masks or which != list(range(which[0], which[-1] + 1)):
        return None
    dims, sizes = named(shape)
    kept = without(dims, which)
    rows = max(one.dim() for one in indices)
    made = (*kept[: which[0]], *((),) * rows, *kept[which[-1] + 1 :])
    return kept, made, sizes


RULES: Final[Rules] = {
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.embedding.default: embedding,
    aten.embedding_dense_backward.default: embedding_backward,
    aten.gather.default: gather,
    aten.scatter.value: scatter,
    aten.scatter.src: scatter,
    aten.scatter_add.default: scatter_add,
    aten.index_select.default: index_select,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.scatter_reduce.two: scatter,
}
