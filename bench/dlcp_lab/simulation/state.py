"""All that an object holds, as a value to compare."""

from collections.abc import Collection
from enum import Enum
from typing import Any

import numpy as np


def frozen(value: Any, ignored: Collection[str] = (), seen: dict[int, Any] | None = None) -> Any:
    """By value, each object once; without the attributes whose names are `ignored`."""
    seen = {} if seen is None else seen
    if isinstance(value, int | float | str | bytes | None):
        return value
    if isinstance(value, Enum | type):
        return str(value)
    if id(value) in seen:
        return "again"
    seen[id(value)] = value  # alive, so that no other gets its id
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return [(frozen(k, ignored, seen), frozen(v, ignored, seen)) for k, v in value.items()]
    if isinstance(value, list | tuple | set | frozenset) or hasattr(value, "popleft"):
        return [type(value).__name__, *(frozen(each, ignored, seen) for each in value)]
    names = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())]
    names += list(getattr(value, "__dict__", {}))
    return [
        (n, frozen(getattr(value, n), ignored, seen))
        for n in names
        if n not in ignored and hasattr(value, n)
    ]
