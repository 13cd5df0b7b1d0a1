"""Pooling without what only one device knows.

Torch's backward of a maximum reads the index of each maximum in the whole image, and that of an
average reads the operand for its shape. In a captured graph these calls become operations that find
the maximum again, and that have the shape as an argument.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx

aten = torch.ops.aten
MAXIMA: Final = {
    2: (aten.max_pool2d_with_indices, aten.max_pool2d_with_indices_backward),
    3: (aten.max_pool3d_with_indices, aten.max_pool3d_with_indices_backward),
}
AVERAGES: Final = {2: aten.avg_pool2d_backward, 3: aten.avg_pool3d_backward}


@torch.library.custom_op("dlcp_spmd::max_pool", mutates_args=())
def max_pool(  # noqa: PLR0917  # the arguments of ATen's
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,  # the form of ATen
) -> Tensor:
    """The maxima of windows of the last dimensions."""
    of = MAXIMA[len(kernel)][0].default
    made: Tensor = of(x, kernel, stride, padding, dilation, ceil)[0]
    return made


@max_pool.register_fake
def _(x: Tensor, *options: Any) -> Tensor:
    made: Tensor = MAXIMA[len(options[0])][0].default(x, *options)[0]
    return made


@torch.library.custom_op("dlcp_spmd::max_pool_backward", mutates_args=())
def max_pool_backward(  # noqa: PLR0913, PLR0917  # the arguments of ATen's
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,  # the form of ATen
) -> Tensor:
    """The gradient of the operand. Of equal maxima the first has all, as on one device."""
    of, backward = MAXIMA[len(kernel)]
    options = kernel, stride, padding, dilation, ceil
    _, indices = of.default(x, *options)
    made: Tensor = backward.default(gradient, x, *options, indices)
    return made


@max_pool_backward.register_fake
def _(gradient: Tensor, x: Tensor, *options: Any) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("dlcp_spmd::avg_pool_backward", mutates_args=())
def avg_pool_backward(  # noqa: PLR0913, PLR0917  # the arguments of ATen's
    gradient: Tensor,
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,  # the form of ATen
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """The gradient of an operand of `shape`."""
    options = kernel, stride, padding, ceil, count_include_pad, divisor
    made: Tensor = AVERAGES[len(kernel)].default(gradient, gradient.new_empty(shape), *options)
    return made


@avg_pool_backward.register_fake
def _(gradient: Tensor, shape: Sequence[int], *options: Any) -> Tensor:
    return gradient.new_empty(shape)


MAX: Final = torch.ops.dlcp_spmd.max_pool.default
MAX_BACKWARD: Final = torch.ops.dlcp_spmd.max_pool_backward.default
AVERAGE_BACKWARD: Final = torch.ops.dlcp_spmd.avg_pool_backward.default


def replace_pools(graph: fx.Graph) -> None:
    """In a graph whose dead code is gone. A model that uses the indices keeps torch's call."""
    for node in list(graph.nodes):
        for dims, (_, backward) in MAXIMA.items():
            if node.target == backward.default:
                gradient, x, *options, _ = node.args
                _become(graph, node, MAX_BACKWARD, (gradient, x, *_full(options, dims)))
            elif node.target == AVERAGES[dims].default:
                gradient, x, *options = node.args
                shape = list(x.meta["val"].shape)
                options = [*_full(options[:3], dims), *options[3:]]
                _become(graph, node, AVERAGE_BACKWARD, (gradient, shape, *options))
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        for dims, (forward, _) in MAXIMA.items():
            if node.target == forward.default and {user.args[1] for user in node.users} == {0}:
                x, *options = node.args
                options = [*options, *([], [0] * dims, [1] * dims, False)[len(options) - 1 :]]
                (values,) = node.users
                _become(graph, values, MAX, (x, *_full(options, dims)))
    graph.eliminate_dead_code()


def _full(options: Sequence[Any], dims: int) -> list[Any]:
    """A number per dimension, and the stride, which is that of the kernel if there is none."""
    lists = [
        list(one) * dims if isinstance(one, list) and len(one) == 1 else one for one in options
    ]
    if not lists[1]:
        lists[1] = lists[0]
    return lists


def _become(graph: fx.Graph, node: fx.Node, target: Any, args: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        made = graph.call_function(target, args)
    made.meta.update(node.meta)
    made.stack_trace = node.stack_trace
    node.replace_all_uses_with(made)
    graph.erase_node(node)
