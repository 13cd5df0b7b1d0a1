"""Binds every documented form of a collective's arguments to one form.

A method takes tensors, then its options (root, reduction, timeout) as one object, by position or by
name. A single tensor may stand for a list of one (torch/_C/_distributed_c10d.pyi).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import repeat
from typing import Any, Final

import torch
from msgspec import Struct
from torch._C import _distributed_c10d as torch_c10d

from dlcpd.contract.errors import BadOperation

UNSET: Final = timedelta(milliseconds=-1)  # default timeout of options objects in C++
_SUM: Final[Any] = torch_c10d.ReduceOp.SUM
# By field of CallOptions: the attribute of PyTorch's options objects.
_ATTRIBUTES: Final = {
    "root": "rootRank", "root_tensor": "rootTensor", "op": "reduceOp", "timeout": "timeout",
    "device": "device",
}  # fmt: skip

Names = tuple[str, ...]  # names of one argument: they differ by overload and PyTorch version


class CallOptions(Struct, frozen=True):
    """Options of one call."""

    root: int = 0
    root_tensor: int = 0  # position in the root's list
    op: Any = _SUM  # dist.ReduceOp
    timeout: timedelta | None = None  # None: the group's
    device: str = ""  # device type of a barrier; "": that of the tensors


@dataclass(frozen=True, slots=True)
class CallForm:
    """The arguments of a method."""

    first: tuple[Names, ...]  # arguments before the options
    options: str = ""  # class of the options; "": there are none
    words: Names = ()  # names of the options by position, without the timeout, which is last
    depths: tuple[int, ...] = ()  # nesting of tensors in `first`: 0 a tensor, 1 a list of tensors,
    # 2 a list of lists. If all are one level less deep, each stands for a list of one.
    known: tuple[Names, ...] = field(init=False)  # all arguments, by position
    kind: Any = field(init=False)  # the class of the options; None: there are none

    def __post_init__(self) -> None:
        words = tuple((word,) for word in self._options())
        object.__setattr__(self, "known", self.first + words)
        object.__setattr__(self, "kind", getattr(torch_c10d, self.options, None))

    def bind(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], CallOptions]:
        """The arguments before the options, and the options. Raises: BadOperation."""
        # First the form in which torch.distributed calls: tensors nested as they should be, and an
        # options object.
        count = len(self.first)
        if not named and len(positional) == count + (self.kind is not None):
            first = list(positional[:count])
            if all(map(_is_nested, first, self.depths)):
                if self.kind is None:
                    return first, _DEFAULTS
                if type(positional[count]) is self.kind:
                    return first, _read(positional[count])
        return self._bind(name, positional, named)

    def _bind(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], CallOptions]:
        left = dict(named)
        values: dict[str, Any] = {}
        if len(positional) > len(self.known):
            raise BadOperation(f"{name}: {len(positional)} arguments; it takes {self._said()}")
        for names, value in zip(self.known, positional, strict=False):
            values[names[0]] = value
        for names in (*self.known, ("opts",)):
            for one in names:
                if one in left and names[0] in values:
                    raise BadOperation(f"{name}: argument {names[0]!r} is given twice")
                if one in left:
                    values[names[0]] = left.pop(one)
        if left or any(names[0] not in values for names in self.first):
            wrong = f"no argument {next(iter(left))!r}" if left else "too few arguments"
            raise BadOperation(f"{name}: {wrong}; it takes {self._said()}")
        first = [values.pop(names[0]) for names in self.first]
        return self._wrapped(name, first), self._asked(name, values)

    def _options(self) -> Names:
        return (*self.words, "timeout") if self.options else ()

    def _said(self) -> str:
        options = self._options()
        words = f", then {', '.join(options)} or opts={self.options}" if options else ""
        return (", ".join(names[0] for names in self.first) + words).removeprefix(", then ")

    def _wrapped(self, name: str, first: list[Any]) -> list[Any]:
        """Wrap single tensors in lists where needed. Raises: BadOperation."""
        count = len(self.depths)
        tensors, rest = first[:count], first[count:]
        if _nested(tensors, self.depths):
            return first
        if all(self.depths) and _nested(tensors, [depth - 1 for depth in self.depths]):
            return [*([each] for each in tensors), *rest]
        wanted = ", ".join(
            f"{names[0]}: {_DEPTHS[depth]}"
            for names, depth in zip(self.first, self.depths, strict=False)
        )
        raise BadOperation(f"{name}: it takes {wanted}")

    def _asked(self, name: str, values: dict[str, Any]) -> CallOptions:
        """The options from their values or an options object. Raises: BadOperation."""
        for word in ("opts", *self._options()):  # an options object may be the first option
            given = values.get(word)
            if given is not None and hasattr(given, "timeout"):
                beside = [key for key, value in values.items() if key != word and value is not None]
                if beside:
                    raise BadOperation(
                        f"{name}: {beside[0]!r} is given, and an options object too: give one "
                        "of them"
                    )
                values = _values(name, given, self.options)
                break
        timeout = values.get("timeout")
        if not isinstance(timeout, timedelta | None):
            raise BadOperation(f"{name}: timeout {timeout!r} is not valid: give a timedelta")
        op, device = values.get("op"), values.get("device")
        return CallOptions(
            _root(name, values.get("root")),
            values.get("root_tensor") or 0,
            _SUM if op is None else op,
            None if timeout == UNSET else timeout,
            "" if device is None else device.type,
        )


_DEPTHS: Final = ("a tensor", "a list of tensors", "a list of lists of tensors")


_DEFAULTS: Final = CallOptions()


def _read(options: Any) -> CallOptions:
    """The options of an object of the right class."""
    root, root_tensor, op, timeout, device = map(
        getattr, repeat(options), _ATTRIBUTES.values(), repeat(None)
    )
    return CallOptions(
        root or 0,
        root_tensor or 0,
        _SUM if op is None else op,
        None if timeout == UNSET else timeout,
        "" if device is None else device.type,
    )


def _nested(values: Sequence[Any], depths: Sequence[int]) -> bool:
    return all(map(_is_nested, values, depths))


def _is_nested(value: Any, depth: int) -> bool:
    if not depth:
        return isinstance(value, torch.Tensor)
    if not isinstance(value, list | tuple):
        return False
    if depth == 1:
        return all(map(isinstance, value, repeat(torch.Tensor)))
    return all(map(_is_nested, value, repeat(depth - 1)))


def _values(name: str, options: Any, wanted: str) -> dict[str, Any]:
    """The values of a PyTorch options object by name. Raises: BadOperation."""
    if not isinstance(options, getattr(torch_c10d, wanted)):
        found = type(options).__name__
        raise BadOperation(f"{name}: the options are a {found}: give {wanted}")
    return {word: getattr(options, attribute, None) for word, attribute in _ATTRIBUTES.items()}


def _root(name: str, root: Any) -> int:
    """`root` as an int; None: 0. Raises: BadOperation."""
    if root is None:
        return 0
    try:
        return int(root.__index__())
    except (AttributeError, TypeError) as exc:
        raise BadOperation(
            f"{name}: root {root!r} is not in the group: give a rank of the group"
        ) from exc


_TENSORS: Final = (("tensors", "tensor"),)
_GATHERED: Final = (("output_tensors",), ("input_tensors", "input_tensor"))
_SCATTERED: Final = (
    ("output_tensors", "output_tensor", "output"), ("input_tensors", "input_tensor", "input"),
)  # fmt: skip
_SINGLE: Final = (("output", "output_tensor", "outputTensor"),
                  ("input", "input_tensor", "inputTensor"))  # fmt: skip
_COALESCED: Final = (("outputs", "output_lists", "outputTensors"),
                     ("inputs", "input_list", "inputTensors"))  # fmt: skip
_SPLITS: Final = (("output_split_sizes",), ("input_split_sizes",))

FORMS: Final = {
    "allreduce": CallForm(_TENSORS, "AllreduceOptions", ("op",), (1,)),
    "allreduce_coalesced": CallForm(_TENSORS, "AllreduceCoalescedOptions", ("op",), (1,)),
    "reduce": CallForm(_TENSORS, "ReduceOptions", ("root", "op"), (1,)),
    "broadcast": CallForm(_TENSORS, "BroadcastOptions", ("root",), (1,)),
    "allgather": CallForm(_GATHERED, "AllgatherOptions", depths=(2, 1)),
    "allgather_coalesced": CallForm(_COALESCED, "AllgatherOptions", depths=(2, 1)),
    "all_gather_single": CallForm(_SINGLE, "AllgatherOptions", depths=(0, 0)),
    "all_gather_single_coalesced": CallForm(_COALESCED, "AllgatherOptions", depths=(1, 1)),
    "gather": CallForm(_GATHERED, "GatherOptions", ("root",), (2, 1)),
    "scatter": CallForm(_SCATTERED, "ScatterOptions", ("root",), (1, 2)),
    "reduce_scatter": CallForm(_SCATTERED, "ReduceScatterOptions", ("op",), (1, 2)),
    "reduce_scatter_single": CallForm(_SINGLE, "ReduceScatterOptions", ("op",), (0, 0)),
    "reduce_scatter_single_coalesced": CallForm(
        _COALESCED, "ReduceScatterOptions", ("op",), (1, 1)
    ),
    "alltoall": CallForm(_SCATTERED, "AllToAllOptions", depths=(1, 1)),
    "all_to_all_single": CallForm((*_SINGLE, *_SPLITS), "AllToAllOptions", depths=(0, 0)),
    "barrier": CallForm((), "BarrierOptions"),
    "send": CallForm((("tensors",), ("dstRank",), ("tag",)), depths=(1,)),
    "recv": CallForm((("tensors",), ("srcRank",), ("tag",)), depths=(1,)),
    "recv_anysource": CallForm((("tensors",), ("tag",)), depths=(1,)),
}
