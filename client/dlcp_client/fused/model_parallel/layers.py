"""Linear layers that are divided among ranks; what travels overlaps the computation.

Weights are as of `torch.nn.functional.linear`: [out_features, in_features].
"""

from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from dlcp_client.fused.model_parallel.dropping import Dropout, next_seed
from dlcp_client.fused.model_parallel.groups import AnyGroup, group_of
from dlcp_client.products import (
    GatheredProduct,
    ReducedProduct,
    ScatteredProduct,
)
from dlcp_client.quantities import number, switch, whole
from dlcpd.contract.errors import BadTensor

DTYPES: Final = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def row_parallel(  # noqa: PLR0913  # all but the first three by keyword
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    group: AnyGroup,
    residual: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    gather: bool = True,
    pieces: int = 0,
) -> Tensor:
    """dropout(sum over ranks of x @ weight.T + bias) + residual, for in_features that are divided.

    A piece of rows is reduced while the next one is multiplied. Every rank of the group calls it,
    with the same bias, residual and options; so do their backward passes.

    Args:
        x: [..., in_features / ranks] of this rank.
        weight: [out_features, in_features / ranks] of this rank.
        bias: [out_features].
        group: of the ranks: of a session, or a group or mesh dimension of backend "dlcp".
        residual: of the shape of the result.
        dropout: probability of 0 instead of x / (1 - p), before the residual is added.
        seed: of the dropout, equal on all ranks; by default another one at each call. Give it where
            a forward pass is run again, as by activation checkpoints.
        gather: whether each rank gets the whole result, [..., out_features]. Else it gets, and
            gives as residual, its part of dimension 0, which the number of ranks divides.
        pieces: number of pieces, equal on all ranks; 0: by size.

    Raises: BadConfig, BadTensor, ArenaFull, or the error that ended an operation.
    """
    dropout, pieces = number("dropout", dropout, below=1), whole("pieces", pieces)
    if seed is not None:
        seed = whole("seed", seed, -(1 << 63), (1 << 63) - 1)
    ranks = group_of(group)
    _check_linear("row_parallel", x, weight, bias, residual)
    lead = list(x.shape[:-1])
    if not switch("gather", gather) and ranks is not None:
        lead[0] = _divided("row_parallel(gather=False)", x, ranks.size)
    shape = torch.Size([*lead, weight.shape[0]])
    if residual is not None and residual.shape != shape:
        raise BadTensor(
            f"row_parallel: the residual has shape {list(residual.shape)}, and the result "
            f"{list(shape)}: they must be equal"
        )
    drop = None
    if dropout:
        drop = Dropout(dropout, next_seed(ranks) if seed is None else seed, weight.shape[0])
    if ranks is None:
        return _of_one_rank(x, weight, bias, residual, drop)
    flat = residual if residual is None else _matrix(residual)
    kind: Any = _RowParallel if gather else _RowParallelScattered
    made: Tensor = kind.apply(_matrix(x), weight, bias, flat, ranks, drop, pieces)
    return made.view(shape)


def column_parallel(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, group: AnyGroup, pieces: int = 0
) -> Tensor:
    """x @ weight.T + bias, for out_features that are divided; x is equal on all ranks.

    In the backward pass a piece of the gradient of `x` is reduced while the next one, and then that
    of the weight, is computed. Arguments and errors are those of `row_parallel`, but for:

    Args:
        x: [..., in_features], the same on every rank.
        weight, bias: [out_features / ranks, in_features] and [out_features / ranks] of this rank.
    """
    ranks, pieces = group_of(group), whole("pieces", pieces)
    _check_linear("column_parallel", x, weight, bias)
    if ranks is None:
        return F.linear(x, weight, bias)
    kind: Any = _ColumnParallel
    made: Tensor = kind.apply(_matrix(x), weight, bias, ranks, pieces)
    return made.view(*x.shape[:-1], weight.shape[0])


def all_gather_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, group: AnyGroup, pieces: int = 0
) -> Tensor:
    """x @ weight.T + bias, for out_features that are divided, and x of which each rank has a part
    of dimension 0, such as of a sequence. The result has all parts.

    This rank's rows are multiplied while the first rows of the others come, and these while others
    come. The gathered x is kept for the backward pass, which reduces the gradient of x in pieces.
    Arguments and errors are those of `row_parallel`, but for:

    Args:
        x: [rows / ranks, ..., in_features], of equal shape on every rank.
        weight, bias: [out_features / ranks, in_features] and [out_features / ranks] of this rank.
    """
    ranks, pieces = group_of(group), whole("pieces", pieces)
    _check_linear("all_gather_linear", x, weight, bias)
    if x.dim() < 2:
        raise BadTensor(
            f"all_gather_linear: x of shape {list(x.shape)} has no rows of which each rank could "
            "have a part: give [rows / ranks, ..., in_features]"
        )
    if ranks is None:
        return F.linear(x, weight, bias)
    kind: Any = _AllGatherLinear
    made: Tensor = kind.apply(_matrix(x), weight, bias, ranks, pieces)
    return made.view(x.shape[0] * ranks.size, *x.shape[1:-1], weight.shape[0])


class _RowParallel(torch.autograd.Function):
    """Every rank has the whole result, and its gradient: nothing travels in the backward pass."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, residual, group, drop, pieces = given
        epilogue = _Epilogue(slice(0, x.shape[0]), bias, residual, drop)
        out = ReducedProduct(group, [(x, weight.t())], finish=epilogue, pieces=pieces).result()
        ctx.save_for_backward(x, weight, epilogue.kept)
        ctx.drop = drop
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, kept = ctx.saved_tensors
        needs = ctx.needs_input_grad
        inner = ctx.drop.apply(grad, kept) if ctx.drop else grad
        return (
            inner @ weight if needs[0] else None,
            inner.t() @ x if needs[1] else None,
            inner.sum(0) if needs[2] else None,
            grad if needs[3] else None,
            *[None] * 3,
        )


class _RowParallelScattered(torch.autograd.Function):
    """Each rank has a part of the rows of the result and of its gradient."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, residual, group, drop, pieces = given
        part = x.shape[0] // group.size
        rows = slice(group.rank * part, (group.rank + 1) * part)
        epilogue = _Epilogue(rows, bias, residual, drop)
        out = ScatteredProduct(group, [(x, weight.t())], finish=epilogue, pieces=pieces).result()
        ctx.save_for_backward(x, weight, epilogue.kept)
        ctx.group, ctx.drop, ctx.pieces = group, drop, pieces
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, kept = ctx.saved_tensors
        needs = ctx.needs_input_grad
        inner = ctx.drop.apply(grad, kept) if ctx.drop else grad
        product = GatheredProduct(ctx.group, inner, [weight], pieces=ctx.pieces)
        whole, [of_x] = product.result()
        return (
            of_x,
            whole.t() @ x if needs[1] else None,
            whole.sum(0) if needs[2] else None,
            grad if needs[3] else None,
            *[None] * 3,
        )


class _ColumnParallel(torch.autograd.Function):
    """Nothing travels in the forward pass."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, group, pieces = given
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.pieces = group, pieces
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return _gradients(ctx, grad, weight, x, ReducedProduct)


class _AllGatherLinear(torch.autograd.Function):
    """Rows travel before the product, and their gradients after it."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, group, pieces = given
        whole, [out] = GatheredProduct(group, x, [weight.t()], pieces=pieces).result()
        ctx.save_for_backward(whole, weight)
        ctx.group, ctx.pieces = group, pieces
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        whole, weight = ctx.saved_tensors
        return _gradients(ctx, grad, weight, whole, ScatteredProduct)


def _gradients(
    ctx: Any,
    grad: Tensor,
    weight: Tensor,
    x: Tensor,
    product: type[ReducedProduct | ScatteredProduct],
) -> Any:
    """Of x, weight and bias. The weight's is computed while that of x is on its way."""
    needs = ctx.needs_input_grad
    of_x = product(ctx.group, [(grad, weight)], pieces=ctx.pieces) if needs[0] else None
    of_weight = grad.t() @ x if needs[1] else None
    of_bias = grad.sum(0) if needs[2] else None
    return of_x.result() if of_x else None, of_weight, of_bias, None, None


class _Epilogue:
    """Bias, dropout and residual of a piece's rows, while later pieces are on their way."""

    def __init__(
        self, rows: slice, bias: Tensor | None, residual: Tensor | None, drop: Dropout | None
    ) -> None:
        """`rows`: of the whole, which this rank computes."""
        self._first, self._bias, self._residual, self._drop = rows.start, bias, residual, drop
        self.kept: Tensor | None = None  # complete after the product: the backward pass needs it
        if drop is not None:
            self.kept = torch.empty((rows.stop - rows.start, drop.columns), dtype=torch.bool)

    def __call__(self, sums: Tensor, rows: slice, into: Tensor) -> None:
        if self._bias is None:
            into.copy_(sums)
        else:
            torch.add(sums, self._bias, out=into)
        if self._drop is not None and self.kept is not None:
            kept = self.kept[rows] = self._drop.kept(self._first + rows.start, into.shape[0])
            into.copy_(self._drop.apply(into, kept))
        if self._residual is not None:
            into.add_(self._residual[rows])


def _of_one_rank(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, drop: Dropout | None
) -> Tensor:
    out = F.linear(x, weight, bias)
    if drop is not None:
        kept = drop.kept(0, prod(out.shape[:-1]))
        out = drop.apply(out, kept.view(out.shape))
    return out if residual is None else out + residual


def _matrix(x: Tensor) -> Tensor:
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _divided(name: str, x: Tensor, ranks: int) -> int:
    """This rank's part of dimension 0."""
    if x.dim() < 2 or x.shape[0] % ranks:
        raise BadTensor(
            f"{name}: dimension 0 of shape {list(x.shape)} cannot be divided equally among "
            f"{ranks} ranks: pad it"
        )
    return x.shape[0] // ranks


def _check_linear(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None
) -> None:
    """Refuse what cannot be multiplied, before anything travels."""
    given: dict[str, Any] = {"x": x, "weight": weight}
    given |= {"bias": bias} if bias is not None else {}
    given |= {"residual": residual} if residual is not None else {}
    for what, tensor in given.items():
        check_tensor(f"{name}: {what}", tensor)
        if tensor.dtype != x.dtype:
            raise BadTensor(
                f"{name}: {what} is of {tensor.dtype}, and x of {x.dtype}: convert one of them"
            )
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise BadTensor(
            f"{name}: x of shape {list(x.shape)} and a weight of {list(weight.shape)}: the last "
            "dimensions must be equal, as of torch.nn.functional.linear"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise BadTensor(
            f"{name}: a bias of shape {list(bias.shape)}: the weight has {weight.shape[0]} rows"
        )


def check_tensor(what: str, given: Any) -> None:
    """Raises: BadTensor unless it is what the operations here compute with."""
    if not isinstance(given, Tensor):
        raise BadTensor(f"{what} is {type(given).__name__}: give a tensor")
    dense = given.device.type == "cpu" and given.layout == torch.strided
    if not dense or given.dtype not in DTYPES:
        raise BadTensor(
            f"{what} is of {given.dtype} and {given.layout} on {given.device}: it must be dense, "
            "on the CPU, and of float32, float64, float16 or bfloat16"
        )
