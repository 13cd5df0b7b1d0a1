"""Finds the DDP model in the given one: itself, compiled, or made by replicate()."""

from typing import Any, NamedTuple

from torch import nn
from torch.distributed._composable.replicate import DDP as REPLICATED
from torch.distributed._composable.replicate import replicate
from torch.nn.parallel import DistributedDataParallel

from dlcp_client.device.registry import device_of
from dlcp_client.hooks.held_hook import held_by
from dlcpd.contract.errors import BadConfig


class WrappedModel(NamedTuple):
    """A model that can be registered."""

    ddp: DistributedDataParallel
    module: nn.Module  # the user's module
    staged: bool  # whether its gradients are on devices that need staging


def wrapped(model: Any) -> WrappedModel:
    """`model`, if register supports it. For replicate(), creates its DDP now: every rank calls it.

    Raises: BadConfig; BadTensor for a device that cannot be staged.
    """
    ddp, module = _found(model)
    held_by(ddp)
    staged = any([device_of(parameter) is not None for parameter in ddp.parameters()])
    return WrappedModel(ddp, module, staged)


def _found(model: Any) -> tuple[DistributedDataParallel, nn.Module]:
    """The DDP model and the user's module. Raises: BadConfig."""
    inside = getattr(model, "_orig_mod", None)  # result of torch.compile
    if isinstance(inside, nn.Module):
        return _found(inside)
    if isinstance(model, DistributedDataParallel):
        return model, model.module
    if isinstance(model, nn.Module) and isinstance(model, REPLICATED):
        state = replicate.state(model)
        if not state.has_initialized:
            state.lazy_init()
        return state._ddp, model  # noqa: SLF001  # no public way to it
    raise BadConfig(
        "register needs a model of DistributedDataParallel or replicate(), and this is a "
        f"{type(model).__name__}: wrap the model first"
    )
