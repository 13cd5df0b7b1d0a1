"""Linear layers that are divided among ranks, with communication that overlaps computation."""

from .layers import all_gather_linear, column_parallel, row_parallel
from .options import inductor_options

__all__ = ["all_gather_linear", "column_parallel", "inductor_options", "row_parallel"]
