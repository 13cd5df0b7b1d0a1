"""A torch model's parameters and gradients as numpy arrays, with names for its servers."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, AdamW, Optimizer

from dlcp_client.hooks.exempt import exempt_parameters
from dlcp_client.numpy.arrays import Array
from dlcpd.contract.errors import BadConfig, BadTensor

from .client import NamedTensor
from .specs import OptimizerSpec, Settings

FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_KINDS: Final = {SGD: "sgd", Adam: "adam", AdamW: "adamw"}
_COMPILED: Final = "_orig_mod."  # part of names in the result of torch.compile(module)


class ModelTensors:
    """The trained parameters, in the order of the model.

    Values are sent as float32, and rounded once to the dtype of the parameter.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | OptimizerSpec) -> None:
        """Raises: BadConfig, BadTensor naming the part that no server can train."""
        self._optimizer = optimizer
        groups = _groups(model, optimizer)
        exempt = exempt_parameters(model)
        chosen = [
            (n, p) for n, p in model.named_parameters() if p.requires_grad and id(p) in groups
        ]
        for name, parameter in chosen:
            _check(name, parameter)
        if not any(p.numel() for _, p in chosen):
            raise BadConfig(
                "the optimizer has no trainable parameter of the model: construct it after "
                "the model"
            )
        self.parameters = [p for _, p in chosen]
        self.named = [
            NamedTensor(
                n.replace(_COMPILED, ""),
                tuple(p.shape),
                groups[id(p)],
                exempt=id(p) in exempt,
                dtype=str(p.dtype).removeprefix("torch."),
            )
            for n, p in chosen
        ]

    def spec(self) -> OptimizerSpec:
        """The optimizer of the servers, with its present settings. Raises: BadConfig."""
        optimizer = self._optimizer
        if isinstance(optimizer, OptimizerSpec):
            return optimizer
        kind = _KINDS[type(optimizer)]
        return OptimizerSpec(
            kind, tuple(_settings(kind, group) for group in optimizer.param_groups)
        )

    def gradients(self) -> list[Array | None]:
        """The present gradients; None for a parameter without one. Raises: BadTensor."""
        return [None if p.grad is None else _array(p.grad) for p in self.parameters]

    def values(self) -> list[Array]:
        """The present parameters."""
        return [_array(p) for p in self.parameters]

    @torch.no_grad()
    def store(self, arrays: Sequence[Array]) -> None:
        """Copy the arrays to the parameters."""
        for parameter, array in zip(self.parameters, arrays, strict=True):
            if not _shared(parameter):
                parameter.copy_(torch.from_numpy(array).view(parameter.shape))

    def places(self) -> list[Array]:
        """Arrays for `store`: the memory of the parameters where possible."""
        return [
            _array(p) if _shared(p) else np.empty(p.numel(), np.float32) for p in self.parameters
        ]


def _shared(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_contiguous()


def _array(tensor: torch.Tensor) -> Array:
    """The values as a float32 array. Raises: BadTensor."""
    if tensor.layout is not torch.strided:
        raise BadTensor(f"a gradient is sparse ({tensor.layout}): use dense gradients")
    array: Array = tensor.detach().to(torch.float32).contiguous().numpy()
    return array


def _groups(model: Any, optimizer: Any) -> dict[int, int]:
    """Parameter group by id() of the parameter. Raises: BadConfig."""
    if not isinstance(model, nn.Module):
        raise BadConfig(f"register takes a torch.nn.Module, not {type(model).__name__}")
    for module in model.modules():
        if isinstance(module, DistributedDataParallel | FSDPModule):
            raise BadConfig(
                f"{type(module).__name__} averages gradients over all ranks: register the "
                "plain module"
            )
    if isinstance(optimizer, OptimizerSpec):
        return {id(p): 0 for p in model.parameters()}
    if type(optimizer) not in _KINDS:
        known = ", ".join(f"torch.optim.{kind.__name__}" for kind in _KINDS)
        raise BadConfig(
            f"optimizer {type(optimizer).__name__} is not known: the servers have {known}, and "
            "sgd, adam, adamw and lamb of dlcp_client.ps"
        )
    return {
        id(p): number
        for number, group in enumerate(optimizer.param_groups)
        for p in group["params"]
    }


def _settings(kind: str, group: dict[str, Any]) -> Settings:
    """Settings of a torch parameter group. Raises: BadConfig for unsupported options."""
    for name in ("maximize", "amsgrad"):
        if group.get(name):
            raise BadConfig(
                f"the servers do not support {kind} with {name}=True: remove the option"
            )
    if kind == "sgd":
        names = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
        return tuple(float(group[name]) for name in names)
    decays_apart = group.get("decoupled_weight_decay", False)
    if decays_apart != (kind == "adamw"):
        raise BadConfig(
            f"{kind} with decoupled_weight_decay={decays_apart} is another optimizer: use its class"
        )
    numbers = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
    return tuple(float(number) for number in numbers)


def _check(name: str, parameter: nn.Parameter) -> None:
    """Raises: BadTensor if no server can train the parameter."""
    if parameter.device.type != "cpu":
        raise BadTensor(
            f"parameter {name!r} is on {parameter.device}, and servers train models on the "
            "CPU: move the model to the CPU"
        )
    if parameter.layout is not torch.strided:
        raise BadTensor(f"parameter {name!r} is sparse ({parameter.layout}): use a dense parameter")
    if parameter.dtype not in FLOATS:
        known = ", ".join(str(one).removeprefix("torch.") for one in FLOATS)
        raise BadTensor(
            f"parameter {name!r} is {parameter.dtype}, and servers train {known}: convert the model"
        )
