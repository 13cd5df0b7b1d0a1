"""Checks that the lists, dtypes and sizes of a call match.

Errors contain the phrases of Gloo's errors ("invalid tensor type"): programs and PyTorch's own
tests search for them.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch

from dlcpd.contract.errors import BadOperation, BadTensor

from .staging import Buffer
from .transport import USER_TAGS

T = TypeVar("T")
U = TypeVar("U")


def paired(outputs: Sequence[T], inputs: Sequence[U]) -> list[tuple[T, U]]:
    """Outputs and inputs in pairs. Raises: BadOperation, BadTensor."""
    if not inputs and not outputs:
        raise BadTensor("requires non-empty input tensor list")
    if len(outputs) != len(inputs):
        raise BadOperation(
            f"requires input/output tensor lists to have the same length: {len(outputs)} outputs "
            f"for {len(inputs)} inputs"
        )
    return list(zip(outputs, inputs, strict=True))


def only(values: Sequence[T], what: str) -> T:
    """The one value. Raises: BadOperation."""
    if len(values) != 1:
        raise BadOperation(f"requires a single-element {what}: it has {len(values)} elements")
    return values[0]


def check_empty(values: Sequence[object], what: str) -> None:
    """Check lists that the root alone gives, which are empty here. Raises: BadOperation."""
    if any(values):
        raise BadOperation(f"requires empty {what} on non-root: the root alone gives it")


def check_root(rank: int, size: int) -> int:
    """`rank` of a group of `size` ranks. Raises: BadOperation."""
    if not 0 <= rank < size:
        raise BadOperation(f"invalid root rank {rank} of a group of {size}")
    return rank


def check_root_tensor(index: int, count: int) -> int:
    """`index` of a list of `count` tensors. Raises: BadOperation."""
    if not 0 <= index < count:
        raise BadOperation(f"invalid root tensor {index} of a list of {count}")
    return index


def check_alike(tensors: Sequence[torch.Tensor]) -> None:
    """Check a list of one tensor per device of this rank. Raises: BadTensor."""
    if not tensors:
        raise BadTensor("requires non-empty tensor list")
    for tensor in tensors[1:]:
        check_dtype(tensors[0], tensor)
        check_same(tensor.numel(), tensors[0].numel())


def check_lists(
    outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], size: int
) -> None:
    """Check for one list per rank of a group of `size` ranks, each like `inputs`.

    Raises: BadOperation, BadTensor.
    """
    if len(outputs) != size:
        raise BadOperation(
            f"output lists should be equal to world size: {len(outputs)} lists for a group of "
            f"{size}"
        )
    for output in outputs:
        for index, (target, given) in enumerate(paired(output, inputs)):
            if target.numel() != given.numel():
                raise BadTensor(f"invalid size of output tensor at index {index}")
            if target.dtype != given.dtype:
                raise BadTensor(f"invalid tensor type at index {index}")


def check_dtype(one: torch.Tensor, other: torch.Tensor) -> None:
    """Compare the dtypes of tensors whose bytes are moved. Raises: BadTensor."""
    if one.dtype != other.dtype:
        raise BadTensor(f"invalid tensor type: {other.dtype} beside {one.dtype}: use one dtype")


def check_same(found: int, needed: int) -> None:
    """Compare two counts of elements or bytes. Raises: BadTensor."""
    if found != needed:
        raise BadTensor(
            f"invalid tensor size: {found} where {needed} elements (bytes, where nothing is "
            f"reduced) belong: inputs and outputs of all ranks must match"
        )


def check_count(buffer: Buffer, size: int, what: str) -> None:
    """Check for one tensor per rank of a group of `size` ranks. Raises: BadOperation."""
    if (count := len(buffer.tensors)) != size:
        raise BadOperation(
            f"invalid {what} tensor list. Incorrect {what} list size {count}. {what.capitalize()} "
            f"list size should be {size}: give one per rank"
        )


def check_parts(parts: Buffer, whole: Buffer, size: int, what: str) -> None:
    """Check for one tensor per rank, each like the one of `whole`.

    Raises: BadOperation, BadTensor.
    """
    check_count(parts, size, what)
    check_dtype(whole.tensors[0], parts.tensors[0])
    for found in parts.sizes:
        check_same(found, whole.sizes[0])


def bytes_of_rows(tensor: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    """The bytes by rank of `tensor`, whose rows are split; empty `splits`: equally.

    Raises: BadOperation.
    """
    rows = tensor.size(0) if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise BadOperation(f"{rows} rows for {size} ranks: give splits")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise BadOperation(
            f"splits {list(splits)} do not fit {rows} rows: give one number per rank, with the sum "
            f"{rows}"
        )
    row = tensor.nbytes // rows if rows else 0
    return [count * row for count in splits]


def check_message(peer: int, tag: int, size: int) -> None:
    """Check peer and tag of a message in a group of `size` ranks. Raises: BadOperation."""
    if not 0 <= peer < size:
        raise BadOperation(f"rank {peer} is not in this group of {size} ranks")
    if not 0 <= tag < USER_TAGS:
        raise BadOperation(f"tag {tag} is out of range: use 0 to {USER_TAGS - 1}")
