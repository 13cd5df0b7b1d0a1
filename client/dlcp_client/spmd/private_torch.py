"""The private names of torch that capture needs: torch may move them in any version.

Raises: BadConfig on import, where this torch lacks one of them.
"""

import torch

from dlcpd.contract.errors import BadConfig

try:
    from torch._decomp import get_decompositions
    from torch._functorch._aot_autograd import descriptors
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch.fx.traceback import preserve_node_meta, set_stack_trace
except ImportError as error:
    raise BadConfig(
        f"spmd does not support torch {torch.__version__}: {error}; use torch 2.13"
    ) from error

__all__ = [
    "aot_export_joint_with_descriptors",
    "descriptors",
    "get_decompositions",
    "preserve_node_meta",
    "set_stack_trace",
]
