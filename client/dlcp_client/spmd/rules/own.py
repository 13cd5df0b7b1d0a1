"""Rules of a user's own operations, written like an einsum: `b t c, c -> b t c`."""

import re
from collections.abc import Callable, Iterable
from inspect import getattr_static
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from dlcpd.contract.errors import BadConfig

from .call import Call
from .rule import Dims, Rule, rule

WHOLE: Final = "_"  # a dimension that stays whole
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*|_")
Names: TypeAlias = tuple[str, ...]  # of the dimensions of a tensor
Text: TypeAlias = str | Callable[[Call], str | None]


class Written(NamedTuple):
    """`b t c, c -> b t c`, parsed."""

    operands: tuple[Names, ...]
    results: tuple[Names, ...]


class Own(NamedTuple):
    """The rule of one operation, as a user wrote it."""

    text: Text
    linear: tuple[frozenset[int], ...]


OWN: Final[dict[Any, Own]] = {}  # by operation


def add_rule(operation: Any, dims: Text, *, linear: Iterable[int | Iterable[int]] = ()) -> None:
    """Says how ranks divide an operation, in the place of a rule that it may have.

    `operation`: `torch.ops.mylib.scan.default`, or what `torch.library.custom_op` returns.
    `dims`: the names of the dimensions of each tensor among the arguments, then of each result.
    Ranks may divide a dimension with a name, the same way in all tensors that have it; `_` stays
    whole. A result that lacks a name is a sum over it, in which rows of zeros change nothing. A
    function gets the `Call` (`operands`, `results`, `option(name)`) and returns such a text; None:
    every rank computes the whole.
    `linear`: operands, or sets of operands together, in which the operation is linear: partial sums
    of them pass through it.

    `check_rule` computes with parts of real tensors whether the rule is true.

    Raises: BadConfig naming the operation and the mistake.
    """
    target = target_of(operation)
    if isinstance(dims, str):
        parse(dims, target)
    elif not callable(dims):
        raise BadConfig(f"the rule of {target} is {dims!r}: write a text such as 'b c, c -> b c'")
    together = (one if isinstance(one, Iterable) else (one,) for one in linear)
    OWN[target] = Own(dims, tuple(frozenset(one) for one in together))


def target_of(operation: Any) -> torch._ops.OpOverload:
    """The overload that a captured graph calls."""
    target = getattr_static(operation, "_opoverload", None) or operation  # of a custom_op
    if isinstance(target, torch._ops.OpOverloadPacket):
        names = target.overloads()  # type: ignore[no-untyped-call]  # torch has no types here
        target = getattr(target, names[0]) if len(names) == 1 else target
    if not isinstance(target, torch._ops.OpOverload):
        raise BadConfig(
            f"add_rule needs an operation such as torch.ops.mylib.scan.default, not {operation!r}"
        )
    if target._schema.is_mutable:
        raise BadConfig(f"{target} changes an argument in place: give it a form that returns it")
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise BadConfig(f"{target} draws random numbers, which would depend on the division")
    return target


def parse(text: str, target: object) -> Written:
    """The names of a rule's text.

    Raises: BadConfig naming the operation and the mistake.
    """
    sides = text.split("->")
    if len(sides) != 2:
        raise BadConfig(f"the rule of {target} is {text!r}: write operands, '->', results")
    written = Written(*(tuple(tuple(one.split()) for one in side.split(",")) for side in sides))
    for names in (*written.operands, *written.results):
        for name in names:
            if not NAME.fullmatch(name):
                raise BadConfig(
                    f"the rule of {target} has the dimension {name!r}: use letters and digits, or _"
                )
            if name != WHOLE and names.count(name) > 1:
                raise BadConfig(f"the rule of {target} has {name!r} twice in one tensor")
    new = {name for names in written.results for name in names}
    new -= {WHOLE, *(name for names in written.operands for name in names)}
    if new:
        raise BadConfig(
            f"the rule of {target} has {min(new)!r} in a result only: write _, or name the "
            "dimension in an operand"
        )
    return written


def own_rule(call: Call) -> Rule | None:
    """The rule that a user gave. None: none, or not for these arguments.

    Raises: BadConfig where the rule does not fit the tensors of the call.
    """
    if call.target not in OWN:
        return None
    text, linear = OWN[call.target]
    if not isinstance(text, str):
        made = text(call)
        if made is None:
            return None
        text = made
    written = parse(text, call.target)
    sizes = _sizes(call, written)
    for at in frozenset().union(*linear):
        if type(at) is not int or not 0 <= at < len(call.operands):
            raise BadConfig(
                f"the rule of {call.target} is linear in operand {at!r}: it has "
                f"{len(call.operands)} tensors, from 0 on"
            )
    operands = [
        _dims(names, one, sizes) for names, one in zip(written.operands, call.operands, strict=True)
    ]
    results = [
        () if one is None else _dims(names, one, sizes)
        for names, one in zip(written.results, call.results, strict=True)
    ]
    return rule(operands, results, sizes, linear=linear)


def _sizes(call: Call, written: Written) -> dict[str, int]:
    """Rows of each name. A dimension of one row of an operand is broadcast."""
    sizes: dict[str, int] = {}
    for what, names, tensors in (
        ("operand", written.operands, call.operands),
        ("result", written.results, call.results),
    ):
        if len(names) != len(tensors):
            raise BadConfig(
                f"the rule of {call.target} has {len(names)} {what}s, and this call {len(tensors)}"
            )
        for at, (dims, one) in enumerate(zip(names, tensors, strict=True)):
            if one is None:
                continue
            if len(dims) != one.dim():
                raise BadConfig(
                    f"the rule of {call.target} has {len(dims)} dimensions for {what} {at}, which "
                    f"has {one.dim()}"
                )
            for name, size in zip(dims, one.shape, strict=True):
                if name == WHOLE or (size == 1 and what == "operand"):
                    continue
                if sizes.setdefault(name, size) != size:
                    raise BadConfig(
                        f"the rule of {call.target} has {name!r} for {sizes[name]} rows, and for "
                        f"{size} of {what} {at}"
                    )
    return sizes


def _dims(names: Names, tensor: torch.Tensor, sizes: dict[str, int]) -> Dims:
    """A dimension of no row or of one row has no factor."""
    return tuple(
        (name,) if size > 1 and name in sizes else ()
        for name, size in zip(names, tensor.shape, strict=True)
    )
