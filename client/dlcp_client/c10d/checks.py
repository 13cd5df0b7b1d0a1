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
        raise BadTensor("empty lists, where lists of tensors are needed")
    if len(outputs) != len(inputs):
        raise BadOperation(f"{len(outputs)} outputs for {len(inputs)} inputs: give one for each")
    return list(zip(outputs, inputs, strict=True))


def only(values: Sequence[T], what: str) -> T:
    """The one value. Raises: BadOperation."""
    if len(values) != 1:
        raise BadOperation(f"{what}: {len(values)}, where one is needed")
    return values[0]


def check_same(found: int, needed: int) -> None:
    """Compare two counts of elements or bytes. Raises: BadTensor."""
    if found != needed:
        raise BadTensor(
            f"{found} where {needed} elements (bytes, where nothing is reduced) belong: inputs "
            f"and outputs of all ranks must match"
        )


def check_message(peer: int, tag: int, size: int) -> None:
    """Check peer and tag of a message in a group of `size` ranks. Raises: BadOperation."""
    if not 0 <= peer < size:
        raise BadOperation(f"rank {peer} of a group of {size}")
    if not 0 <= tag < USER_TAGS:
        raise BadOperation(f"tag {tag}: use 0 to {USER_TAGS - 1}")
