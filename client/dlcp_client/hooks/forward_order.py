"""The order in which the forward pass uses parameters, and their traffic classes."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from dlcp_client.group import Group
from dlcpd.contract.policy import LossPolicy

# By the bytes that the forward pass uses before a parameter's first use, the order in which
# gradients are awaited. Thirds, because a class for all parameters would favour none.
CLASSES: Final = ("front", "middle", "back")


class ForwardOrder:
    """Watches forward passes until the first query; then the order is fixed.

    Ranks may get different orders, for example with different experts: `agree` makes them equal. A
    tied parameter counts at its first use. One whose module is never called follows the parameter
    that was registered before it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        known = {id(p) for p in self._parameters}
        self._owners = {
            id(module): own
            for module in model.modules()
            if (own := [id(p) for p in module.parameters(recurse=False) if id(p) in known])
        }
        self._first_use: dict[int, int] = {}  # id of a parameter -> position
        self._classes: dict[int, str] = {}
        # A global hook: hooks on the model itself would be copied and pickled with it.
        self._watching = register_module_forward_pre_hook(self._note)

    def class_of(self, parameter: nn.Parameter) -> str:
        """The traffic class of a parameter's gradient. The first call ends the watching."""
        if not self._classes:
            self.stop()
            self._classes = thirds(in_order(self._parameters, self._first_use))
        return self._classes[id(parameter)]

    def agree(self, group: Group, policy: LossPolicy) -> None:
        """Adopt the classes of rank 0. All of `group` call it after their first forward pass.

        Raises: the error that ended the operation.
        """
        own = [CLASSES.index(self.class_of(p)) for p in self._parameters]
        if group.size == 1:
            return
        shared = torch.tensor(own, dtype=torch.int32) * (group.rank == 0)
        group.all_reduce(shared, "sum", policy=policy).wait()
        found = zip(self._parameters, shared.tolist(), strict=True)
        self._classes = {id(p): CLASSES[number] for p, number in found}

    def stop(self) -> None:
        """Stop watching."""
        self._watching.remove()

    def _note(self, module: nn.Module, _: Any) -> None:
        for parameter in self._owners.pop(id(module), ()):
            self._first_use.setdefault(parameter, len(self._first_use))


def in_order(parameters: Iterable[nn.Parameter], first_use: dict[int, int]) -> list[nn.Parameter]:
    """`parameters`, given in order of registration, by first use."""
    place, keyed = -1, []
    for index, parameter in enumerate(parameters):
        place = first_use.get(id(parameter), place)
        keyed.append((place, index, parameter))
    return [parameter for _, _, parameter in sorted(keyed, key=lambda entry: entry[:2])]


def thirds(ordered: list[nn.Parameter]) -> dict[int, str]:
    """id of each parameter -> class."""
    classes = classes_of([p.nbytes for p in ordered])
    return {id(p): one for p, one in zip(ordered, classes, strict=True)}


def classes_of(sizes: Sequence[int]) -> list[str]:
    """The class of each parameter, given their bytes, by the bytes before it: the first is always
    front."""
    total, before, found = sum(sizes), 0, []
    for size in sizes:
        found.append(CLASSES[min(before * len(CLASSES) // max(total, 1), 2)])
        before += size
    return found
