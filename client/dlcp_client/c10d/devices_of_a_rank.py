"""Lists of one tensor per device of a rank, in operations that treat each device as a rank.

Such lists date from processes with several devices. As with Gloo, an all-reduce reduces the tensors
of the list too, and a broadcast fills all of them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import torch
from msgspec.structs import replace

from dlcpd.contract.errors import BadOperation

from .checks import check_alike, check_count
from .reduction import Reduction
from .staging import BYTES, Buffer, room
from .work import GroupWork

_OF_TWO: Final[dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip


def reduced_here(tensors: Sequence[torch.Tensor], reduction: Reduction) -> torch.Tensor:
    """The reduction of several tensors of this rank, in a new tensor. Raises: BadOperation."""
    if reduction.op not in _OF_TWO:
        raise BadOperation(f"{reduction.op} of several tensors of a rank: give one tensor")
    with torch.no_grad():
        return reduce(_OF_TWO[reduction.op], tensors)


def rooms_of_all(
    outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], ranks: int
) -> list[Buffer]:
    """Buffers for the tensors of all ranks in each of `outputs`, which share their values.

    Raises: BadOperation, BadTensor.
    """
    check_alike(inputs)
    targets = [room(output, BYTES) for output in outputs]
    for target in targets:
        check_count(target, ranks * len(inputs), "output")
        check_alike([inputs[0], *target.tensors])
    return [replace(target, whole=targets[0].whole) for target in targets]


def copied_to_all(work: GroupWork, result: torch.Tensor, tensors: list[torch.Tensor]) -> GroupWork:
    """`work`, whose `result` is then copied to `tensors`."""

    def finish() -> None:
        work.conclude()
        with torch.inference_mode():
            for tensor in tensors:
                if tensor is not result:
                    tensor.detach().copy_(result.view(tensor.shape))

    return GroupWork(work.parts, tensors, finish)
