"""One operation in place of a layer that is like another, and one in place of its backward pass.

Torch captures them as it captures any operation. `inlining` puts the graph of the other layer in
their places.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from .calls import Differs


class Form(NamedTuple):
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    differentiable: bool

    @staticmethod
    def of(x: Tensor) -> "Form":
        return Form(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad)

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


class Forms(NamedTuple):
    """The results of a layer, and the gradients of its operands. None: there is none."""

    results: Sequence[Form]
    gradients: Sequence[Form | None]


_forms: ContextVar[Mapping[int, Forms]] = ContextVar("_forms")


@contextmanager
def standing_in(forms: Mapping[int, Forms]) -> Iterator[None]:
    """For a capture: the layers by number."""
    token = _forms.set(forms)
    try:
        yield
    finally:
        _forms.reset(token)


@torch.library.custom_op("dlcp_spmd::layer", mutates_args=())
def layer(operands: Sequence[Tensor], number: int) -> list[Tensor]:
    """The results of a layer."""
    return [one.empty() for one in _forms.get()[number].results]


@torch.library.custom_op("dlcp_spmd::layer_backward", mutates_args=())
def layer_backward(gradients: Sequence[Tensor], number: int) -> list[Tensor]:
    """The gradients of the operands that have one."""
    return [one.empty() for one in _forms.get()[number].gradients if one is not None]


layer.register_fake(lambda operands, number: [one.empty() for one in _forms.get()[number].results])
layer_backward.register_fake(
    lambda gradients, number: [
        one.empty() for one in _forms.get()[number].gradients if one is not None
    ]
)
LAYER: Final = torch.ops.dlcp_spmd.layer.default
LAYER_BACKWARD: Final = torch.ops.dlcp_spmd.layer_backward.default


class _Layer(torch.autograd.Function):
    """Both as one function of autograd."""

    @staticmethod
    def forward(ctx: Any, number: int, *operands: Tensor) -> tuple[Tensor, ...]:
        made = layer(list(operands), number)
        ctx.number = number
        ctx.set_materialize_grads(False)  # torch would make zeros, which no layer gets
        results = _forms.get()[number].results
        pairs = zip(made, results, strict=True)
        ctx.mark_non_differentiable(*[x for x, form in pairs if not form.differentiable])
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        forms = _forms.get()[ctx.number]
        pairs = zip(gradients, forms.results, strict=True)
        given = [x for x, form in pairs if form.differentiable]
        if any(x is None for x in given):
            raise Differs("a result of a layer has no gradient")
        made = iter(layer_backward(given, ctx.number))
        return None, *(None if one is None else next(made) for one in forms.gradients)


def call(number: int, operands: Sequence[Tensor]) -> Sequence[Tensor]:
    """The results of a layer: in place of a call of it."""
    if any(one.differentiable for one in _forms.get()[number].results):
        apply: Callable[..., Sequence[Tensor]] = _Layer.apply
        return apply(number, *operands)
    made: list[Tensor] = layer(list(operands), number)
    return made
