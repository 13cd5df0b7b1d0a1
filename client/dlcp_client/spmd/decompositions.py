"""Operations that capture replaces by others: by those that have rules, and by sums, which may be
partial where torch has one operation."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .private_torch import get_decompositions
from .random_numbers import random_numbers

aten = torch.ops.aten
OF_TORCH: Final = (
    aten.addmv, aten.baddbmm, aten.addbmm, aten.nll_loss_forward,
    aten.nll_loss_backward, aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss,
    aten.smooth_l1_loss_backward, aten.huber_loss, aten.huber_loss_backward,
    aten.binary_cross_entropy_with_logits, aten.binary_cross_entropy,
    aten.binary_cross_entropy_backward,
    aten.native_batch_norm_backward, aten.glu, aten.glu_backward, aten.log_sigmoid_forward,
    aten.log_sigmoid_backward, aten.pixel_shuffle, aten.pixel_unshuffle, aten.soft_margin_loss,
    aten.soft_margin_loss_backward, aten.rrelu_with_noise_backward, aten.nll_loss2d_forward,
    aten.nll_loss2d_backward,
)  # fmt: skip
# Names that begin with an underscore.
MORE_OF_TORCH: Final = (
    "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "_prelu_kernel", "_prelu_kernel_backward",
)  # fmt: skip


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For one capture: its random numbers are those of its own calls."""
    ours: dict[Any, Callable[..., Any]] = {
        aten.addmm.default: _addmm,
        aten.mean.dim: _mean,
        aten.mean.default: _mean,
        aten.var_mean.correction: _var_mean,
        aten.var.correction: _var,
        aten.convolution.default: _convolution,
        aten.convolution_backward.default: _convolution_backward,
        aten.native_group_norm.default: _group_norm,
        aten.native_group_norm_backward.default: _group_norm_backward,
        aten.slice_scatter.default: _slice_scatter,
        aten.select_scatter.default: _select_scatter,
        aten.view_as_complex.default: _view_as_complex,
        torch.ops.aten._conj.default: _conj,  # noqa: SLF001  # aten's name
        aten.vdot.default: _vdot,
    }
    more = [getattr(aten, name) for name in MORE_OF_TORCH]
    return {**get_decompositions([*OF_TORCH, *more]), **ours, **random_numbers()}


def _mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """A sum, which may be partial, and a division."""
    dims = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[at] for at in dims)
    return torch.sum(x, dims, keepdim, dtype=dtype) / count


def _var_mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Two sums: the second is of distances from the mean, as sums of squares lose digits."""
    dims = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[at] for at in dims)
    mean = torch.sum(x, dims, True) / count
    apart = x - mean
    less = count - (1 if correction is None else correction)
    if less <= 0:
        return NotImplemented  # torch warns, and makes NaN or infinity
    var = torch.sum(apart * apart, dims, keepdim) / less
    return var, mean if keepdim else mean.squeeze(dims)


def _var(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> Any:
    found = _var_mean(x, dim, **options)
    return found if found is NotImplemented else found[0]


def _grouped(x: Tensor, groups: int) -> Tensor:
    """Space stays as it is: as one dimension, it could not be divided unevenly."""
    return x.view(x.shape[0], groups, -1, *x.shape[2:])


def _of_channels(x: Tensor, groups: int, dims: int) -> Tensor:
    """A tensor of channels, to be multiplied with one of groups that has `dims` of space."""
    return x.view(1, groups, -1, *[1] * dims)


def _group_norm(x: Tensor, weight: Any, bias: Any, *options: Any) -> Any:
    """In sums over each group."""
    *_, groups, eps = options
    y, space = _grouped(x, groups), x.dim() - 2
    dims = list(range(2, y.dim()))
    var, mean = torch.var_mean(y, dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    y = (y - mean) * rstd
    if weight is not None:
        y = y * _of_channels(weight, groups, space)
    if bias is not None:
        y = y + _of_channels(bias, groups, space)
    return y.flatten(1, 2), mean.squeeze(dims), rstd.squeeze(dims)


def _group_norm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, *options: Any
) -> Any:
    *_, groups, mask = options
    space = x.dim() - 2
    of, y = _grouped(gradient, groups), _grouped(x, groups)
    dims = list(range(2, y.dim()))
    mean, rstd = (one.view(*one.shape, *[1] * len(dims)) for one in (mean, rstd))
    y = (y - mean) * rstd
    of_x = of_weight = of_bias = None
    if mask[0]:
        scaled = of if weight is None else of * _of_channels(weight, groups, space)
        count = math.prod(y.shape[at] for at in dims)
        sums = scaled.sum(dims, True), (scaled * y).sum(dims, True)
        of_x = ((scaled - (sums[0] + y * sums[1]) / count) * rstd).flatten(1, 2)
    others = [0, *range(3, y.dim())]
    if mask[1]:
        of_weight = (of * y).sum(others).flatten()
    if mask[2]:
        of_bias = of.sum(others).flatten()
    return of_x, of_weight, of_bias


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A product, which may be partial, and a sum: without torch's multiplications by 1."""
    product = torch.mm(a, b) if alpha == 1 else torch.mm(a, b) * alpha
    return product + (bias if beta == 1 else bias * beta)


def _convolution(x: Tensor, weight: Tensor, bias: Any, *options: Any) -> Any:
    """A product, which may be partial, and a sum."""
    if bias is None:
        return NotImplemented  # it stays
    return aten.convolution.default(x, weight, None, *options) + bias.view(-1, *[1] * (x.dim() - 2))


def _convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, sizes: Any, *options: Any
) -> Any:
    """The bias' gradient is a sum of its own: the call on a window has rows of other ranks."""
    *others, mask = options
    if not mask[2]:
        return NotImplemented  # it stays
    of_x = of_weight = None
    if mask[0] or mask[1]:
        mask = [mask[0], mask[1], False]
        of_x, of_weight, _ = aten.convolution_backward.default(
            gradient, x, weight, None, *others, mask
        )
    return of_x, of_weight, gradient.sum([0, *range(2, gradient.dim())])


def _slice_scatter(x: Tensor, rows: Tensor, dim: int = 0, *which: int | None) -> Tensor:
    """A choice between two tensors, whose dimensions may be divided."""
    start, end, step = (*which, *(None, None, 1)[len(which) :])
    chosen = range(x.shape[dim])[start:end:step]
    if not chosen:
        return x.clone()
    place = torch.arange(x.shape[dim], device=x.device) - chosen[0]
    is_row = (place >= 0) & (place <= chosen[-1] - chosen[0]) & (place % chosen.step == 0)
    spread = aten.slice_backward.default(rows, list(x.shape), dim, start, end, step)
    return torch.where(_along(is_row, x, dim), spread, x)


def _select_scatter(x: Tensor, row: Tensor, dim: int, index: int) -> Tensor:
    """Likewise."""
    is_row = torch.arange(x.shape[dim], device=x.device) == index % x.shape[dim]
    return torch.where(_along(is_row, x, dim), row.unsqueeze(dim), x)


def _along(flags: Tensor, x: Tensor, dim: int) -> Tensor:
    """Flags of the rows of a dimension, to be used with all of `x`."""
    return flags.view([-1 if at == dim % x.dim() else 1 for at in range(x.dim())])


def _view_as_complex(x: Tensor) -> Tensor:
    """A copy: shards may lie in memory in another way."""
    return torch.complex(x.select(-1, 0), x.select(-1, 1))


def _conj(x: Any) -> Any:
    """A copy: torch would only note that it is conjugated, which a collective does not see."""
    return torch.conj_physical(x) if isinstance(x, Tensor) else x.conjugate()


def _vdot(x: Tensor, y: Tensor) -> Tensor:
    return torch.dot(x.conj_physical() if x.is_complex() else x, y)
