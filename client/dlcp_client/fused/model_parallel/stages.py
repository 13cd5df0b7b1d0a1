"""Activations from one stage of a pipeline to the next, of which each rank sends only its part.

A stage is a group of ranks that share its layers. An all-reduce, elementwise operations and a
message to the next stage become a reduce-scatter, the same operations on a part of the rows, a
message with that part, and a gather on the next stage. The gradient goes back in the same way.
"""

from typing import Any

import torch
from torch import Tensor

from dlcp_client.fused.model_parallel.groups import AnyGroup, group_of
from dlcp_client.fused.model_parallel.layers import check_tensor
from dlcp_client.fused.model_parallel.messages import (
    MOST_DIMENSIONS,
    Description,
    GatheredMessage,
    Message,
)
from dlcp_client.group import Group
from dlcp_client.quantities import whole
from dlcpd.contract.errors import BadConfig, BadTensor


def send_next(x: Tensor, *, stages: AnyGroup, pieces: int = 0) -> Tensor:
    """Send the rows of this rank to the same rank of the next stage, which calls `receive`.

    Args:
        x: [rows of this rank, ...], as `row_parallel(gather=False)` returns them: of the whole
            [rows, ...], the ranks of a stage have equal parts of dimension 0, in their order.
        stages: the ranks that have the same place in each stage, by stage: a group of a session, or
            a group or mesh dimension of backend "dlcp".
        pieces: number of pieces; 0: by size. The next stage gathers a piece while others come.

    Returns: 0, on whose `backward()` the gradient of x comes from the next stage.

    Raises: BadConfig, BadTensor, ArenaFull, or the error that ended an operation.
    """
    pipeline, pieces = _pipeline("send_next", stages), whole("pieces", pieces)
    if pipeline.rank + 1 == pipeline.size:
        raise BadConfig(
            f"send_next: stage {pipeline.rank} is the last one: compute the loss instead"
        )
    check_tensor("send_next: x", x)
    if not 1 <= x.dim() <= MOST_DIMENSIONS:
        raise BadTensor(
            f"send_next: x of shape {list(x.shape)} must have 1 to {MOST_DIMENSIONS} dimensions"
        )
    kind: Any = _Sent
    message = Message(pipeline, pipeline.rank + 1)
    made: Tensor = kind.apply(x, _anchor(), message, Description.of(x, pieces))
    return made


def receive(*, stages: AnyGroup, group: AnyGroup | None = None) -> Tensor:
    """Receive what the previous stage sends by its next `send_next`: the whole of it, gathered from
    the parts of all ranks of this stage.

    Its gradient must be equal on all ranks of the stage, as that of the `x` of `column_parallel`:
    each rank sends its part of it back.

    Args:
        stages: as of `send_next`.
        group: the ranks of this stage; as many as the previous one has, and in the same order.
            None: return the part of this rank, such as for `all_gather_linear`.

    Raises: BadConfig, BadOperation, ArenaFull, or the error that ended an operation.
    """
    pipeline = _pipeline("receive", stages)
    if not pipeline.rank:
        raise BadConfig("receive: stage 0 is the first one: give it the inputs instead")
    ranks = None if group is None else group_of(group)
    kind: Any = _Received
    made: Tensor = kind.apply(_anchor(), Message(pipeline, pipeline.rank - 1), ranks)
    return made


def _pipeline(name: str, stages: AnyGroup) -> Group[Tensor]:
    found = group_of(stages)
    if found is None:
        raise BadConfig(f"{name}: stages={stages} has one rank: a pipeline has at least two stages")
    return found


def _anchor() -> Tensor:
    """An input that requires a gradient: torch calls no backward pass without one."""
    return torch.zeros(0, requires_grad=True)


class _Sent(torch.autograd.Function):
    """The gradient comes back in as many pieces."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, _, message, description = given
        message.announce(description)
        message.send(x)
        ctx.message = message
        return torch.zeros((), dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        gradient = ctx.message.description.empty()
        for _rows, work in ctx.message.receive(gradient):
            work.wait()
        return gradient, None, None, None


class _Received(torch.autograd.Function):
    """Every rank has the gradient of the whole, and sends its part."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        _, message, group = given
        message.await_description()
        ctx.message, ctx.group = message, group
        part: Tensor = message.description.empty()
        pieces = message.receive(part)
        if group is not None:
            part = GatheredMessage(group, part, pieces).result()
        for _rows, work in pieces:
            work.wait()
        return part

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        [gradient] = gradients
        if ctx.group is not None:
            gradient = gradient.chunk(ctx.group.size)[ctx.group.rank]
        ctx.message.send(gradient)
        return None, None, None
