"""Checks that cross_step supports the model, the optimizer and a call of step()."""

from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcpd.contract.errors import BadConfig, BadTensor

# Their step updates each parameter independently, so partial updates give the same result. Exactly
# these classes: a subclass, or another optimizer, may compare parameters.
SEPARABLE: Final = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam,
    torch.optim.Adamax, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop,
    torch.optim.Rprop, torch.optim.ASGD, torch.optim.Adafactor, torch.optim.Muon,
)  # fmt: skip
_INSTEAD: Final = "use ddp.register for this training"
_OPTIONS: Final = {
    "find_unused_parameters": "whether a parameter was used is known only at the end of backward()",
    "static_graph": (
        "cross_step learns neither its first step nor the parameters that it does not use"
    ),
    "mixed_precision": "it replaces the parameters in each forward pass; use torch.autocast",
}


def check_suitable(model: DistributedDataParallel, optimizer: Any) -> None:
    """Raises: BadConfig or BadTensor naming the part that cannot be deferred, and what to do."""
    for option, reason in _OPTIONS.items():
        if getattr(model, option, None):
            raise BadConfig(
                f"cross_step does not support DistributedDataParallel({option}=...): {reason}; "
                f"or {_INSTEAD}"
            )
    for name, module in model.module.named_modules():
        if problem := _module_problem(module):
            raise BadConfig(f"module {name!r} ({type(module).__name__}) {problem}; or {_INSTEAD}")
    for name, parameter in model.module.named_parameters():
        if type(parameter) is not nn.Parameter:
            raise BadTensor(
                f"parameter {name!r} has the class {type(parameter).__name__}, and cross_step "
                f"must change the class of a parameter until its gradient arrives; {_INSTEAD}"
            )
    check_optimizer(optimizer)
    mine = {id(p) for p in model.parameters()}
    if not any(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
        raise BadConfig(
            "the optimizer has no parameter of this model: construct it after the model"
        )


def _module_problem(module: nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return "runs outside Python and would not wait for its parameters: do not script it"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
        return "makes sparse gradients, which dlcpd cannot reduce: set sparse=False"
    return ""


def check_backward(model: DistributedDataParallel) -> None:
    """Raises: BadConfig in a backward pass whose gradients cannot be deferred."""
    if model._join_config.enable:  # noqa: SLF001  # no public name
        raise BadConfig(
            "join() averages on behalf of ranks that make no step, which cross_step cannot "
            f"do: {_INSTEAD}"
        )


def check_optimizer(optimizer: Any) -> None:
    """Raises: BadConfig for an optimizer whose parameters cannot be updated one by one."""
    kind = type(optimizer)
    if kind not in SEPARABLE:
        known = ", ".join(one.__name__ for one in SEPARABLE)
        raise BadConfig(
            f"{kind.__module__}.{kind.__name__} may read all gradients at once, and with "
            f"cross_step they arrive one by one: use the {known} of torch.optim, or {_INSTEAD}"
        )
    for option in ("fused", "differentiable"):
        if any(group.get(option) for group in optimizer.param_groups):
            raise BadConfig(
                f"cross_step cannot defer {kind.__name__}({option}=True): remove the option"
            )


def check_step(optimizer: Optimizer, closure: Any) -> None:
    """Raises: BadConfig for a call of step() that cannot be deferred."""
    if closure is not None:
        raise BadConfig(
            f"step(closure) needs the loss at once: call backward() before step(), or {_INSTEAD}"
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:  # noqa: SLF001
        raise BadConfig(
            "the optimizer has step hooks, which would run once per part of the parameters: "
            f"remove the hooks, or {_INSTEAD}"
        )
