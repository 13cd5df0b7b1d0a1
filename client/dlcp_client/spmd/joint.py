"""The joint graph of a module by torch: forward and backward pass, in ATen operations."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from dlcp_client.user_lines import UserLines

from .decompositions import decompositions
from .interpolation import repeated
from .literals import replace_literals
from .pools import replace_pools
from .private_torch import aot_export_joint_with_descriptors, descriptors, preserve_node_meta
from .tied import output_nodes


class Joint(NamedTuple):
    """`results`: how they are nested."""

    graph: fx.Graph
    results: pytree.TreeSpec


def joint_of(module: nn.Module, example: Sequence[Any]) -> Joint:
    """The graph, without dead code and checks of values."""
    with ExitStack() as stack:
        stack.enter_context(preserve_node_meta())
        stack.enter_context(_Lines())
        stack.enter_context(_without_mkldnn())
        copied = stack.enter_context(_copied_results(module))
        joint = aot_export_joint_with_descriptors(
            stack, module, tuple(example), decompositions=decompositions()
        )
        graph = joint.graph_module.graph
        _without_copies(graph, copied)
        replace_literals(graph, joint.graph_module)
        graph.eliminate_dead_code()
        _drop_checks(graph)
        replace_pools(graph)
        return Joint(graph, joint.out_spec)


@contextmanager
def _copied_results(module: nn.Module) -> Iterator[set[int]]:
    """The module returns copies of its results. Torch leaves the gradient of a result that is a
    parameter, or a view of another result, to its own caller. Yields their numbers."""
    found: set[int] = set()

    def copied(_module: nn.Module, _given: Any, results: Any) -> Any:
        leaves, nesting = pytree.tree_flatten(results)
        for at, one in enumerate(leaves):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                found.add(at)
                leaves[at] = one.clone()
        return pytree.tree_unflatten(leaves, nesting)

    hook = module.register_forward_hook(copied)
    try:
        yield found
    finally:
        hook.remove()


def _without_copies(graph: fx.Graph, copied: Collection[int]) -> None:
    out = graph.output_node()
    nodes = list(output_nodes(out))
    for at, (desc, node) in enumerate(zip(out.meta["desc"], nodes, strict=True)):
        if isinstance(desc, descriptors.PlainAOTOutput) and desc.idx in copied and node is not None:
            (nodes[at],) = node.all_input_nodes
    out.args = (tuple(nodes),)


def _drop_checks(graph: fx.Graph) -> None:
    """Checks of values, of the indices of `one_hot` say: a shard cannot stop the others."""
    for node in list(graph.nodes):
        if "_assert_async" in str(node.target):
            graph.erase_node(node)
    graph.eliminate_dead_code()


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Its recurrent layers are one operation, in which nothing can be divided."""
    set_flags: Any = torch.backends.mkldnn.set_flags
    before, *_ = set_flags(False)
    try:
        yield
    finally:
        set_flags(before)


class _Lines(UserLines):
    """A repetition of rows becomes one operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            found = repeated(*args, **kwargs) if func is torch.nn.functional.interpolate else None
            return func(*args, **kwargs) if found is None else found

        return super().__torch_function__(call, types, args, kwargs)
