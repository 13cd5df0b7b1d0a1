"""Whether a user's own rule is true: parts of real tensors are computed, and compared."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dlcpd.contract.errors import BadConfig

from .call import Call
from .own import OWN, own_rule, target_of
from .rule import Dims, rule

Results: TypeAlias = tuple[Tensor | None, ...]
Change: TypeAlias = Callable[[int, Tensor], Tensor]  # of an operand, by its number


def check_rule(operation: Any, *args: Any, **kwargs: Any) -> None:
    """Computes one call whole and in parts, along each dimension that the rule lets ranks divide,
    with a row of zeros where shards are padded, and with sums where the operation is said to be
    linear.

    Raises: BadConfig naming the operation, and the dimension or operand that the rule is wrong of.
    """
    target = target_of(operation)
    if target not in OWN:
        raise BadConfig(f"{target} has no rule: give it one by add_rule")
    check = _Check(target, args, kwargs)
    for name in check.rule.sizes:
        check.parts(name)
        check.padding(name)
    for together in check.rule.linear:
        check.sum_of(together)


class _Check:
    """One call, and its results on changed operands."""

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target = target
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.operands = tuple(one for one in self.leaves if isinstance(one, Tensor))
        self.whole = self.results(lambda _, operand: operand)
        call = Call(target, args, kwargs, self.operands, ("",) * len(self.operands), self.whole)
        self.rule = own_rule(call) or rule([], [], {})  # no claim without a rule

    def results(self, change: Change) -> Results:
        """Of the operation on changed operands."""
        numbers = iter(range(len(self.operands)))
        leaves = [
            change(next(numbers), one) if isinstance(one, Tensor) else one for one in self.leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        found = self.target(*args, **kwargs)
        several = found if isinstance(found, list | tuple) else (found,)
        return tuple(one if isinstance(one, Tensor) else None for one in several)

    def parts(self, name: str) -> None:
        """Two parts, of which the first has a row more at most, are the whole."""
        size = self.rule.sizes[name]
        half = -(-size // 2)

        def part(begin: int, end: int) -> Change:
            def of(number: int, operand: Tensor) -> Tensor:
                dim = _dim(self.rule.operands[number], name)
                return operand if dim is None else operand.narrow(dim, begin, end - begin)

            return of

        first, second = self.results(part(0, half)), self.results(part(half, size))
        joined: list[Tensor | None] = []
        for number, (a, b) in enumerate(zip(first, second, strict=True)):
            dim = _dim(self.rule.results[number], name)
            if a is None or b is None:
                joined.append(None)
            elif dim is not None:
                joined.append(torch.cat([a, b], dim))
            else:
                joined.append(a + b if name in self.rule.summed[number] else a)
        self._equal(tuple(joined), f"parts of {name!r} do not make the whole: write _ for it")

    def padding(self, name: str) -> None:
        """Rows of zeros, as shards may have, change no other row and no sum."""

        def padded(number: int, operand: Tensor) -> Tensor:
            dim = _dim(self.rule.operands[number], name)
            if dim is None:
                return operand
            return torch.cat([operand, torch.zeros_like(operand.narrow(dim, 0, 1))], dim)

        found: list[Tensor | None] = []
        for number, one in enumerate(self.results(padded)):
            dim = _dim(self.rule.results[number], name)
            found.append(
                one if dim is None or one is None else one.narrow(dim, 0, self.rule.sizes[name])
            )
        self._equal(tuple(found), f"a row of zeros of {name!r} changes the others: write _ for it")

    def sum_of(self, together: frozenset[int]) -> None:
        """Results of a sum are the sum of results."""

        def by(factor: int) -> Change:
            return lambda number, one: one * factor if number in together else one

        two, three = self.results(by(2)), self.results(by(-3))
        added = [
            None if a is None or b is None else -(a + b) for a, b in zip(two, three, strict=True)
        ]
        where = ", ".join(map(str, sorted(together)))
        self._equal(tuple(added), f"it is not linear in {where}: leave that out of linear=")

    def _equal(self, found: Results, mistake: str) -> None:
        for one, right in zip(found, self.whole, strict=True):
            if one is None or right is None:
                continue
            try:
                torch.testing.assert_close(one, right, equal_nan=True)
            except AssertionError as error:
                raise BadConfig(f"the rule of {self.target}: {mistake}") from error


def _dim(dims: Dims, name: str) -> int | None:
    return dims.index((name,)) if (name,) in dims else None
