"""The user's line of a call: the innermost frame that is neither torch's nor this package's."""

import linecache
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

import torch
from torch import fx

TORCH: Final = str(Path(torch.__file__).parent)
HERE: Final = str(Path(__file__).parent)
Result = TypeVar("Result")
CACHED: Final = 1 << 12  # lines of the largest models
ADDED: Final = "Gradient addition node"  # torch's note behind the line


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


# A capture asks for a line some 2,000 times per layer of a transformer.
@lru_cache(CACHED)
def _is_users(file: str) -> bool:
    return not file.startswith((TORCH, HERE))


@lru_cache(CACHED)
def _line(file: str, number: int) -> str:
    return f"{Path(file).name}:{number}: {linecache.getline(file, number).strip()}"


def line_of(node: fx.Node) -> str:
    """The line that a node of a capture has. Empty: it has none."""
    return (node.stack_trace or "").split(ADDED)[0]
