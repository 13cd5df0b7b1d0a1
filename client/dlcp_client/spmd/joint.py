"""The joint graph of a module by torch: forward and backward pass, in ATen operations."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from dlcp_client.user_lines import UserLines

from .decompositions import decompositions
from .interpolation import repeated
from .pools import replace_pools
from .private_torch import aot_export_joint_with_descriptors, preserve_node_meta


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
        joint = aot_export_joint_with_descriptors(
            stack, module, tuple(example), decompositions=decompositions()
        )
        graph = joint.graph_module.graph
        graph.eliminate_dead_code()
        _drop_checks(graph)
        replace_pools(graph)
        return Joint(graph, joint.out_spec)


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
