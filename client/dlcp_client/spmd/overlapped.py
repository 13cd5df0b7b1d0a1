"""Products whose sum over an axis takes long: in pieces, of which some travel while others are
computed. Over dlcpd only; other backends compute the product, and then its sum.

Source: GSPMD (arXiv 2105.04663), section 4.4, of gathered operands; Wang et al., Overlap
Communication with Dependent Computation via Decomposition, ASPLOS 2023.
"""

from typing import Any, Final, NamedTuple

import torch
from torch import fx

from dlcp_client.products import MOST, SMALLEST

from .combined import OF, RESHAPE
from .costs import LEAST, Costs
from .emission import SERVES

aten = torch.ops.aten
METHOD: Final = "reduced_product"


class Terms(NamedTuple):
    """A partial sum that is the sum of products of one kind, in another shape if `shape` is not
    None. `kind`: shape and dtype of the whole product; None: not known."""

    factors: list[tuple[fx.Node, fx.Node]]
    kind: tuple[torch.Size, torch.dtype] | None
    shape: Any = None


def overlapped(graph: fx.Graph, costs: Costs) -> fx.Graph:
    """The graph itself, changed."""
    for node in list(graph.nodes):
        if node.op != "call_method" or node.target != "all_reduce":
            continue
        (one,) = node.meta[SERVES]
        pieces = min(int(one.sent / costs.link(one.axis).bytes_per_s / LEAST), MOST)
        terms = _terms(node.args[1]) if pieces > 1 else None
        if terms is not None:
            _replace(graph, node, terms, pieces)
    graph.eliminate_dead_code()
    return graph


def _terms(x: Any) -> Terms | None:
    """None: it is something else, or used elsewhere, too."""
    if not isinstance(x, fx.Node) or len(x.users) != 1:
        return None
    if x.target == aten.mm.default:
        a, b = x.args
        of = x.meta.get(OF)
        kind = None if of is None else (of.meta["val"].shape, of.meta["val"].dtype)
        return Terms([(a, b)], kind)  # type: ignore[list-item]  # nodes
    if x.target == RESHAPE:
        inner = _terms(x.args[0])
        return inner and Terms(inner.factors, inner.kind, x.args[1])
    if x.target == aten.add.Tensor and not x.kwargs and x.args[0] is not x.args[1]:
        first, second = map(_terms, x.args)
        if first and second and first.kind is not None and first[1:] == second[1:]:
            return Terms(first.factors + second.factors, first.kind, first.shape)
    return None


def _replace(graph: fx.Graph, node: fx.Node, terms: Terms, pieces: int) -> None:
    ranks, _, axis = node.args
    with graph.inserting_before(node):
        made = graph.call_method(METHOD, (ranks, terms.factors, axis, pieces))
        made.meta.update(node.meta)
        left = made
        if terms.shape is not None:
            left = graph.call_function(RESHAPE, (made, terms.shape))
    node.replace_all_uses_with(left)
    graph.erase_node(node)


def pieces_of(nbytes: int, wanted: int) -> int:
    """Pieces of a result of `nbytes`, `wanted` at most: a smaller one costs more than it hides."""
    return min(nbytes // SMALLEST, wanted)
