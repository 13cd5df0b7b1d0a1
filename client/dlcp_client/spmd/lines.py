"""The user's line of a call: the innermost frame that is neither torch's nor this package's."""

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import torch
from torch import fx

TORCH: Final = str(Path(torch.__file__).parent)
HERE: Final = str(Path(__file__).parent)
ADDED: Final = "Gradient addition node"  # torch's note behind the line


def user_line() -> str | None:
    """`model.py:12: x = self.up(x)`. None: no frame is a user's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # CPython's only way
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, HERE)):
        frame = frame.f_back
    if frame is None:
        return None
    file, number = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(file, number).strip()
    return f"{Path(file).name}:{number}: {code}"


def line_of(node: fx.Node) -> str:
    """The line that a node of a capture has. Empty: it has none."""
    return (node.stack_trace or "").split(ADDED)[0]
