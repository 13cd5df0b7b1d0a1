"""Layers and stages that are divided among ranks; what travels overlaps computation."""

from .layers import all_gather_linear, column_parallel, row_parallel
from .options import inductor_options
from .stages import receive, send_next

__all__ = [
    "all_gather_linear",
    "column_parallel",
    "inductor_options",
    "receive",
    "row_parallel",
    "send_next",
]
