"""Replaces a method of an optimizer."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch.optim import Optimizer


def replace_method(optimizer: Optimizer, name: str, call: Callable[..., Any]) -> None:
    """Make `call` the optimizer's method.

    It is a bound method, which a later learning-rate scheduler can wrap, and it has the marks of an
    earlier scheduler, which would otherwise warn that its step() was replaced.
    """
    marks = getattr(getattr(optimizer, name), "__dict__", {})

    def method(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if name == "step":
            optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        return call(*args, **kwargs)

    method.__dict__.update(marks)
    setattr(optimizer, name, MethodType(method, optimizer))
