"""Linear layers that are divided among ranks, with communication that overlaps computation."""

from .layers import all_gather_linear, column_parallel, row_parallel

__all__ = ["all_gather_linear", "column_parallel", "row_parallel"]
