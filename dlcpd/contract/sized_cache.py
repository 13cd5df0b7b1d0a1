"""Cache for results of functions, bounded by their total size instead of their number."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class SizedCache:
    """For functions without side effects. The least recently used results are removed while all
    results together are larger than `most`."""

    def __init__(self, most: int, size: Callable[[Any], int]) -> None:
        self._most, self._size_of, self._size = most, size, 0
        self._results: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    @property
    def size(self) -> int:
        """Total size of all cached results."""
        return self._size

    def __len__(self) -> int:
        """Number of cached results."""
        return len(self._results)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` with this cache, which all functions passed in share."""

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            key = function, args, tuple(kwargs.items())
            found = self._results.get(key)
            if found is not None:
                self._results.move_to_end(key)
                result: R = found[0]
                return result
            result = function(*args, **kwargs)
            self._keep(key, result)
            return result

        return cached

    def _keep(self, key: Hashable, result: object) -> None:
        size = self._size_of(result)
        if size > self._most:
            return
        self._results[key] = result, size
        self._size += size
        while self._size > self._most:
            self._size -= self._results.popitem(last=False)[1][1]
