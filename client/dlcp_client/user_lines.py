"""The user's line of a call of torch, and of an error: that of the innermost user's file.

Files of torch and of this client are not a user's, nor is the code that torch generates. The
client's optimizers are, as they are written as users write programs: their lines say which part of
an update a call is.
"""

import linecache
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, Final, TypeVar

import torch
from torch import fx
from torch.fx.traceback import set_stack_trace
from torch.overrides import TorchFunctionMode

CLIENT: Final = Path(__file__).parent
# Folders end with a separator, or torch would match torchvision, which lies beside it.
THEIRS: Final = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, CLIENT))
PROGRAMS: Final = str(CLIENT / "fused" / "language" / "optimizers.py")
Result = TypeVar("Result")
CACHED: Final = 1 << 12  # lines of the largest models
ADDED: Final = "Gradient addition node"  # torch's note behind the line


class UserLines(TorchFunctionMode):
    """Notes the user's line of every call of torch. Autograd keeps it for the backward pass."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = user_line()
        if line is not None:
            set_stack_trace([line])
        return func(*args, **(kwargs or {}))


def user_line() -> str | None:
    """`model.py:12: x = self.up(x)`. None: no frame is a user's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # CPython's only way
    while frame is not None and not _is_users(frame.f_code.co_filename):
        if frame.f_code is called_from.__code__:
            line: str | None = frame.f_locals["line"]
            return line
        frame = frame.f_back
    return None if frame is None else _line(frame.f_code.co_filename, frame.f_lineno)


def called_from(line: str | None, function: Callable[[], Result]) -> Result:
    """The function's result. It finds the line where its own frames are not a user's."""
    return function()


def line_of(node: fx.Node) -> str:
    """The line that a node of a capture has. Empty: it has none."""
    return (node.stack_trace or "").split(ADDED)[0]


def place_of(error: BaseException) -> str:
    """` at model.py:12`: the user's line that an error passed last. Empty: none."""
    passed = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    users = [f" at {Path(file).name}:{line}" for file, line in passed if _is_users(file)]
    return users[-1] if users else ""


# A capture asks for a line some 2,000 times per layer of a transformer.
@lru_cache(CACHED)
def _is_users(file: str) -> bool:
    return file != "<string>" and (not file.startswith(THEIRS) or file == PROGRAMS)


@lru_cache(CACHED)
def _line(file: str, number: int) -> str:
    return f"{Path(file).name}:{number}: {linecache.getline(file, number).strip()}"
