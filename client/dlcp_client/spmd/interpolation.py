"""Nearest interpolation by a whole factor: rows are repeated, and their gradients added.

Torch captures it as an index of the whole image. Capture replaces the user's call.
"""

from typing import Any, Final

import torch
from torch import Tensor


@torch.library.custom_op("dlcp_spmd::repeat_rows", mutates_args=())
def repeat_rows(x: Tensor, dim: int, times: int) -> Tensor:
    """Each row of a dimension `times` times."""
    return x.repeat_interleave(times, dim)


@torch.library.custom_op("dlcp_spmd::add_rows", mutates_args=())
def add_rows(x: Tensor, dim: int, times: int) -> Tensor:
    """The sums of each `times` consecutive rows: the adjoint."""
    return x.reshape(*x.shape[:dim], -1, times, *x.shape[dim + 1 :]).sum(dim + 1)


@repeat_rows.register_fake
def _(x: Tensor, dim: int, times: int) -> Tensor:
    return x.new_empty([n * times if at == dim else n for at, n in enumerate(x.shape)])


@add_rows.register_fake
def _(x: Tensor, dim: int, times: int) -> Tensor:
    return x.new_empty([n // times if at == dim else n for at, n in enumerate(x.shape)])


def _setup(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
    ctx.dim, ctx.times = inputs[1:]


repeat_rows.register_autograd(
    lambda ctx, gradient: (add_rows(gradient, ctx.dim, ctx.times), None, None),
    setup_context=_setup,
)
add_rows.register_autograd(
    lambda ctx, gradient: (repeat_rows(gradient, ctx.dim, ctx.times), None, None),
    setup_context=_setup,
)
REPEAT: Final = torch.ops.dlcp_spmd.repeat_rows.default
ADD: Final = torch.ops.dlcp_spmd.add_rows.default


def repeated(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    *options: Any,
    **more: Any,
) -> Tensor | None:
    """The result of `torch.nn.functional.interpolate`. None: it is no repetition of rows."""
    dims = x.dim() - 2
    wanted = scale_factor if size is None else size
    each = list(wanted) if isinstance(wanted, list | tuple) else [wanted] * dims
    times = each if size is None else [a / b for a, b in zip(each, x.shape[2:], strict=True)]
    others = [*options, *more.values()]
    if mode != "nearest" or any(others) or any(one != int(one) or one < 1 for one in times):
        return None
    for at, one in enumerate(times):
        if one > 1:
            x = repeat_rows(x, 2 + at, int(one))
    return x
