"""Checks that `fused` supports a model, an optimizer and a policy."""

from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcp_client.device.registry import device_of
from dlcp_client.fused.lamb import LAMB
from dlcp_client.fused.program_optimizer import ProgramOptimizer
from dlcpd.contract.errors import BadConfig, BadPolicy, BadTensor
from dlcpd.contract.policy import LossPolicy, checked

# Those of torch have a kernel each that updates element by element, and programs get one; for LAMB,
# `LayerNorms` adds up the norms. Exactly these classes: a subclass may read more than the element.
OPTIMIZERS: Final = (
    *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW),
    *(LAMB, ProgramOptimizer),
)
DTYPES: Final = (torch.float32, torch.float64)
HALVES: Final = (torch.float16, torch.bfloat16)  # of parameters on a device
PLACES: Final = ("", "host", "device")  # values of `where`
KINDS: Final = ("cpu", "cuda")  # of devices
_REFUSED: Final = ("capturable", "differentiable")  # options that the kernels on the CPU lack
_INSTEAD: Final = "or use ddp.register for this training"


def trained(
    model: Any, optimizer: Any, policy: LossPolicy, where: str = ""
) -> dict[str, nn.Parameter]:
    """The parameters that `fused` will update, by name, in the model's order.

    Raises: BadConfig, BadTensor, BadPolicy: what is not supported, and what to do.
    """
    if isinstance(model, DistributedDataParallel):
        if getattr(model, "_comm_hooks", None):
            raise BadConfig(
                "the DistributedDataParallel has a communication hook, which fused would not call: "
                "register a model without one"
            )
        model = model.module
    if not isinstance(model, nn.Module):
        raise BadConfig(f"fused registers a module, and this is a {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise BadConfig(
                f"module {name!r} is scripted: it runs outside Python and would not wait for its "
                f"weights; do not script it, {_INSTEAD}"
            )
    check_optimizer(optimizer)
    if checked(policy).codec:
        raise BadPolicy(
            f"fused has no codec {policy.codec!r}: a bounded or exact policy, {_INSTEAD}"
        )
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if where not in PLACES:
        raise BadConfig(
            f'where={where!r:.40}: give "host" or "device", or leave it out for a model on the CPU'
        )
    for name, parameter in found.items():
        _check_parameter(name, parameter, where)
    _check_one_place(found, where)
    _check_same(found, optimizer)
    return found


def check_optimizer(optimizer: Any) -> None:
    """Raises: BadConfig naming what is not supported of an optimizer."""
    kind = type(optimizer)
    if kind not in OPTIMIZERS:
        known = ", ".join(one.__name__ for one in OPTIMIZERS)
        raise BadConfig(
            f"fused does not know {kind.__module__}.{kind.__name__}: use {known} (torch.optim, and "
            f"fused), {_INSTEAD}"
        )
    for option in _REFUSED:
        if any(group.get(option) for group in optimizer.param_groups):
            raise BadConfig(f"fused does not support {kind.__name__}({option}=True): leave it out")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:  # noqa: SLF001  # no public name
        raise BadConfig(f"the optimizer has step hooks, which fused does not call: {_INSTEAD}")


def _check_parameter(name: str, parameter: nn.Parameter, where: str) -> None:
    what = f"parameter {name!r}"
    if isinstance(parameter, DTensor):
        raise BadTensor(f"{what} is sharded: fused registers parameters that each rank has whole")
    if type(parameter) is not nn.Parameter:
        raise BadTensor(
            f"{what} has the class {type(parameter).__name__}, and fused changes the class of a "
            f"parameter while its weights are awaited: {_INSTEAD}"
        )
    if parameter.device.type not in KINDS:
        raise BadTensor(
            f"{what} is on {parameter.device}: fused takes the CPU and CUDA, {_INSTEAD}"
        )
    device = device_of(parameter)
    if device is not None and not where:
        raise BadTensor(
            f'{what} is on {device.name}: give where="host" to update it in host memory, or '
            f'where="device" to update it there, {_INSTEAD}'
        )
    dtypes = DTYPES if device is None else (*DTYPES, *HALVES)
    if parameter.dtype not in dtypes:
        names = " and ".join(str(one).removeprefix("torch.") for one in dtypes)
        raise BadTensor(f"{what} is {parameter.dtype}: fused updates {names}, {_INSTEAD}")
    if not parameter.is_contiguous():
        raise BadTensor(f"{what} is not contiguous: make it contiguous, {_INSTEAD}")


def _check_one_place(found: dict[str, nn.Parameter], where: str) -> None:
    by_place = {device_of(parameter) is None: name for name, parameter in found.items()}
    if len(by_place) > 1:
        raise BadTensor(
            f"parameter {by_place[True]!r} is on the CPU, and {by_place[False]!r} on a device: "
            f"move all to devices, or all to the CPU"
        )
    if where == "device" and True in by_place:
        raise BadTensor(
            f'parameter {by_place[True]!r} is on the CPU: where="device" is for models on devices, '
            f"leave it out"
        )


def _check_same(found: dict[str, nn.Parameter], optimizer: Optimizer) -> None:
    """The optimizer and the model must have the same parameters: else a rank would wait for a
    gradient that never comes, or update what is not averaged."""
    names = {id(parameter): name for name, parameter in found.items()}
    theirs = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    if lacking := [name for mine, name in names.items() if mine not in theirs]:
        raise BadConfig(
            f"the optimizer lacks parameter {lacking[0]!r} of the model: add it, or freeze it with "
            f"requires_grad_(False)"
        )
    if strange := len(theirs - names.keys()):
        raise BadConfig(
            f"the optimizer has {strange} parameters that the model does not: give each model an "
            f"optimizer of its own"
        )
    if not names:
        raise BadConfig("the model has no parameter to train")
