"""An optimizer whose step() only records that a step is due, and updates each parameter later."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dlcp_client.cross_step.suitability import check_step
from dlcp_client.hooks.lazy_parameters import AwaitedGradient, awaited, forget, land
from dlcp_client.hooks.replace_method import replace_method


class RecordedStep:
    """One call of step(), with the present settings of each group: a scheduler changes them."""

    def __init__(self, optimizer: Optimizer, step: Callable[[], Any]) -> None:
        self._optimizer, self._step = optimizer, step
        self._settings = [
            {name: _kept(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._group_of = {
            id(p): index
            for index, group in enumerate(optimizer.param_groups)
            for p in group["params"]
        }

    def apply(self, parameters: list[nn.Parameter]) -> None:
        """Let the optimizer update only these parameters, from their `.grad`."""
        chosen: dict[int, list[nn.Parameter]] = {}
        for parameter in parameters:
            chosen.setdefault(self._group_of[id(parameter)], []).append(parameter)
        optimizer = self._optimizer
        whole = optimizer.param_groups
        optimizer.param_groups = [
            {**self._settings[index], "params": members} for index, members in chosen.items()
        ]
        try:
            # A forward pass may run under autocast; an update must not.
            with ExitStack() as plain:
                for kind in {parameter.device.type for parameter in parameters}:
                    plain.enter_context(torch.autocast(kind, enabled=False))
                self._step()
        finally:
            optimizer.param_groups = whole


class DeferredStep:
    """Replaces `optimizer.step` and `optimizer.zero_grad` until `close`."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._step, self._zero_grad = optimizer.step, optimizer.zero_grad
        self._hooks = [
            optimizer.register_state_dict_pre_hook(lambda _: self.finish()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.finish()),
        ]
        replace_method(optimizer, "step", self._note)
        replace_method(optimizer, "zero_grad", self._forget)

    def finish(self) -> None:
        """Apply the due updates; waits for their gradients.

        Raises: the error that ended an operation.
        """
        for entry in self._entries():
            if entry.update is not None and awaited(entry.parameter) is entry:
                land(entry)

    def close(self) -> None:
        """Restore the optimizer's methods."""
        for hook in self._hooks:
            hook.remove()
        replace_method(self._optimizer, "step", self._step)
        replace_method(self._optimizer, "zero_grad", self._zero_grad)

    def _note(self, closure: Any = None) -> Any:
        """step(): record updates whose gradients are awaited, and apply the rest now."""
        optimizer = self._optimizer
        check_step(optimizer, closure)
        entries = self._entries()
        if not entries:
            return self._step()
        self.finish()  # updates of an earlier step whose parameters were not used since
        step = RecordedStep(optimizer, self._step)
        here = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entry = awaited(parameter)
                if entry is not None:
                    entry.update = step
                elif parameter.grad is not None:
                    here.append(parameter)
        if here:
            step.apply(here)
        return None

    def _forget(self, set_to_none: bool = True) -> None:
        """zero_grad(): a due update still gets the awaited gradient."""
        for entry in self._entries():
            forget(entry, set_to_none=set_to_none)
        self._zero_grad(set_to_none=set_to_none)

    def _entries(self) -> list[AwaitedGradient]:
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        return [entry for p in parameters if (entry := awaited(p)) is not None]


def _kept(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value  # such as a learning rate
