"""Computation and communication together: the optimizer's update inside the reduction of its
gradients, and layers and pipeline stages that are divided among ranks.

    from dlcp_client import fused
    fused.register(model, optimizer)
    y = fused.row_parallel(x, weight, bias, group=group)

`register` takes a module and an optimizer of torch; the training loop does not change.
"""

from .entry import register
from .lamb import LAMB
from .model_parallel import (
    all_gather_linear,
    column_parallel,
    inductor_options,
    receive,
    row_parallel,
    send_next,
)
from .program_optimizer import ProgramOptimizer
from .registration import FusedRegistration

__all__ = [
    "LAMB",
    "FusedRegistration",
    "ProgramOptimizer",
    "all_gather_linear",
    "column_parallel",
    "inductor_options",
    "receive",
    "register",
    "row_parallel",
    "send_next",
]
