"""Programs of computation and communication, and their transformations (docs/fused-language.md).

from dlcp_client.fused import language as fl

@fl.program(g=fl.local, w=fl.replicated, lr=fl.scalar)
def sgd(g, w, lr):
    return fl.update(w, w - lr * fl.all_reduce(g, "avg"))
"""

from . import optimizers
from .costs import Rates
from .execution import LoweredProgram, lower
from .explanation import explain
from .layouts import Layout, local, replicated, sliced
from .operations import (
    all_gather,
    all_reduce,
    broadcast,
    cast,
    dropout,
    norm,
    own,
    receive,
    reduce_scatter,
    send_next,
    update,
)
from .oracle import Outcome, check, simulate
from .program import FusedProgram, Source, integer, program, scalar
from .tuning import TunedProgram, tune

__all__ = [
    "FusedProgram",
    "Layout",
    "LoweredProgram",
    "Outcome",
    "Rates",
    "Source",
    "TunedProgram",
    "all_gather",
    "all_reduce",
    "broadcast",
    "cast",
    "check",
    "dropout",
    "explain",
    "integer",
    "local",
    "lower",
    "norm",
    "optimizers",
    "own",
    "program",
    "receive",
    "reduce_scatter",
    "replicated",
    "scalar",
    "send_next",
    "simulate",
    "sliced",
    "tune",
    "update",
]
