"""Checks that the lists and sizes of a call match."""

from collections.abc import Sequence
from typing import TypeVar

from dlcpd.contract.errors import BadOperation, BadTensor

from .transport import USER_TAGS

T = TypeVar("T")
U = TypeVar("U")


def paired(outputs: Sequence[T], inputs: Sequence[U]) -> list[tuple[T, U]]:
    """Outputs and inputs in pairs. Raises: BadOperation, BadTensor."""
    if not inputs and not outputs:
        raise BadTensor("the lists are empty: give lists of tensors")
    if len(outputs) != len(inputs):
        raise BadOperation(
            f"{len(outputs)} outputs for {len(inputs)} inputs: give one output per input"
        )
    return list(zip(outputs, inputs, strict=True))


def only(values: Sequence[T], what: str) -> T:
    """The one value. Raises: BadOperation."""
    if len(values) != 1:
        raise BadOperation(f"{what}: {len(values)} tensors, and one is needed")
    return values[0]


def check_same(found: int, needed: int) -> None:
    """Compare two counts of elements or bytes. Raises: BadTensor."""
    if found != needed:
        raise BadTensor(
            f"{found} elements, and {needed} are needed (bytes, unless values are reduced): "
            "inputs and outputs of all ranks must match"
        )


def check_message(peer: int, tag: int, size: int) -> None:
    """Check peer and tag of a message in a group of `size` ranks. Raises: BadOperation."""
    if not 0 <= peer < size:
        raise BadOperation(f"rank {peer} is not in this group of {size} ranks")
    if not 0 <= tag < USER_TAGS:
        raise BadOperation(f"tag {tag} is out of range: use 0 to {USER_TAGS - 1}")
