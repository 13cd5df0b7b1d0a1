"""Matrix products."""

from collections.abc import Callable
from typing import Final

import torch

from .call import Call
from .rule import Dims, Rule, Rules, rule

aten = torch.ops.aten


def product(spec: str) -> Callable[[Call], Rule]:
    """The rule of an einsum: `ik,kj->ij`. Linear in each operand."""
    given, made = spec.split("->")

    def of(call: Call) -> Rule:
        sizes: dict[str, int] = {}
        for letters, one in zip(given.split(","), call.operands, strict=True):
            sizes |= dict(zip(letters, one.shape, strict=True))
        each = tuple(frozenset({at}) for at in range(len(call.operands)))
        sizes = {letter: size for letter, size in sizes.items() if size > 1}
        operands = [_dims(letters, sizes) for letters in given.split(",")]
        return rule(operands, [_dims(made, sizes)], sizes, linear=each)

    return of


def _dims(letters: str, sizes: dict[str, int]) -> Dims:
    return tuple((letter,) if letter in sizes else () for letter in letters)


RULES: Final[Rules] = {
    aten.mm.default: product("ik,kj->ij"),
    aten.bmm.default: product("bik,bkj->bij"),
    aten.mv.default: product("ik,k->i"),
    aten.dot.default: product("k,k->"),
}
