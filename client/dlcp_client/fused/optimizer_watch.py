"""Refuses changes of a registered optimizer that its updates would not follow."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from torch.optim import Optimizer

from dlcp_client.fused.shard_update import ShardUpdate
from dlcp_client.fused.suitability import check_optimizer
from dlcpd.contract.errors import BadConfig


class OptimizerWatch:
    """Compares an optimizer with what it was when it was registered."""

    def __init__(self, optimizer: Optimizer, shards: Sequence[ShardUpdate]) -> None:
        self._optimizer, self._shards = optimizer, shards
        mine = {id(slot.parameter) for shard in shards for slot in shard.bucket.slots}
        groups = optimizer.param_groups
        self._counts = [len(group["params"]) for group in groups]
        self._frozen = [p for group in groups for p in group["params"] if id(p) not in mine]

    def check(self) -> None:
        """Before each step. Raises: BadConfig naming what was changed, and what to do."""
        check_optimizer(self._optimizer)
        if [len(group["params"]) for group in self._optimizer.param_groups] != self._counts:
            raise BadConfig(
                "the optimizer has other parameters than at fused.register: close the handle, "
                "change them, then register again"
            )
        if strange := [p for p in self._frozen if p.grad is not None]:
            raise BadConfig(
                f"a parameter of shape {list(strange[0].shape)} was frozen at fused.register, and "
                f"has a gradient now: close the handle, then register again"
            )
        for shard in self._shards:
            if lacking := shard.lacking:
                raise BadConfig(
                    f"the state of the optimizer has no {lacking}: give amsgrad=True before the "
                    f"first step, as torch requires it, too"
                )


def _refuse_group(_: dict[str, Any]) -> NoReturn:
    raise BadConfig("fused has laid out all parameters: close the handle, then add parameters")


def _refuse_copy() -> NoReturn:
    raise BadConfig(
        "a copy of this optimizer would have no state, of which each rank has a part: copy or save "
        "its state_dict(), on all ranks, or close the handle first"
    )


# Methods of an optimizer that nothing can carry out while it is registered
REFUSED: Final[Mapping[str, Callable[..., NoReturn]]] = {
    "add_param_group": _refuse_group,
    "__getstate__": _refuse_copy,
}
