"""A one-device program on all ranks: a few annotated tensors decide how the others are divided.

    from dlcp_client import spmd

    mesh = spmd.mesh(data=2, model=2)
    spmd.annotate(model, mesh, {"*.up.weight": ("model", None)})
    parallel = spmd.partition(model, mesh, example=(x, y), inputs=[("data", None), ("data",)])

docs/spmd.md says how to read its plan, and when not to use it.
"""

from .annotations import OPEN, annotate
from .costs import Costs, Link
from .explanation import explain
from .manual import (
    all_gather,
    all_reduce,
    all_to_all,
    axis_index,
    manual,
    reduce_scatter,
    shift,
)
from .marks import keep_whole, mesh_split
from .meshes import Mesh, mesh
from .module import Partitioned, measured, partition
from .partitioner import Partition
from .planning import plan
from .rules.own import add_rule
from .rules.own_check import check_rule

__all__ = [
    "OPEN",
    "Costs",
    "Link",
    "Mesh",
    "Partition",
    "Partitioned",
    "add_rule",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "annotate",
    "axis_index",
    "check_rule",
    "explain",
    "keep_whole",
    "manual",
    "measured",
    "mesh",
    "mesh_split",
    "partition",
    "plan",
    "reduce_scatter",
    "shift",
]
