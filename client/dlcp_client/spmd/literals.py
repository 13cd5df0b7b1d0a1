"""Tensors that a model makes from numbers: `torch.tensor([0.2, 0.5])`.

Torch captures them as attributes. As calls, their numbers are in the text of the program, which all
ranks compare.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

FROM_NUMBERS: Final = torch.ops.aten.lift_fresh_copy.default
MOST: Final = 4096  # numbers: more of them belong in a buffer


@torch.library.custom_op("dlcp_spmd::literal", mutates_args=())
def literal(
    numbers: Sequence[torch.types.Number],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The tensor of the numbers."""
    return torch.tensor(numbers, dtype=dtype, device=device).view(shape)


@literal.register_fake
def _(
    numbers: Sequence[torch.types.Number],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


LITERAL: Final = torch.ops.dlcp_spmd.literal.default


def replace_literals(graph: fx.Graph, owner: nn.Module) -> None:
    """Large tensors, complex ones, and tensors that the model keeps and may change, stay attributes
    of `owner`."""
    for node in graph.find_nodes(op="get_attr"):
        x = getattr(owner, str(node.target), None)
        made_here = all(user.target == FROM_NUMBERS for user in node.users)
        if not made_here or not isinstance(x, Tensor) or x.numel() > MOST or x.is_complex():
            continue
        with graph.inserting_before(node):
            args = (pytree.tree_leaves(x.tolist()), list(x.shape), x.dtype, x.device)
            made = graph.call_function(LITERAL, args)
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
