"""Another callable in the place of a method of an optimizer."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch.optim import Optimizer


def stand_in(optimizer: Optimizer, name: str, call: Callable[..., Any]) -> None:
    """Make `call` the optimizer's method.

    A bound one, which a learning-rate scheduler that comes later can wrap; with the marks of one
    that came before, or it warns that its step() is gone.
    """
    marks = getattr(getattr(optimizer, name), "__dict__", {})

    def method(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if name == "step":
            optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        return call(*args, **kwargs)

    method.__dict__.update(marks)
    setattr(optimizer, name, MethodType(method, optimizer))
