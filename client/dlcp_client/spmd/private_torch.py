"""What spmd needs of private names of torch: torch may move them in any version.

Raises: BadConfig on import, where this torch lacks one of them.
"""

from copy import copy

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from dlcpd.contract.errors import BadConfig

try:
    from torch._C import _len_torch_dispatch_stack as dispatch_modes
    from torch._C import _len_torch_function_stack as function_modes
    from torch._C._autograd import _top_saved_tensors_default_hooks as saved_tensor_hooks
    from torch._decomp import get_decompositions
    from torch._functorch._aot_autograd import descriptors
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.traceback import preserve_node_meta
except ImportError as error:
    raise BadConfig(
        f"spmd does not support torch {torch.__version__}: {error}; use torch 2.13"
    ) from error

__all__ = [
    "FakeTensorMode",
    "aot_export_joint_with_descriptors",
    "descriptors",
    "dispatch_modes",
    "function_modes",
    "get_decompositions",
    "gradient_of",
    "preserve_node_meta",
    "saved_tensor_hooks",
]


def gradient_of(parameter: DTensor, shard: Tensor) -> DTensor:
    """A gradient of which this rank has `shard`: divided and laid out as the parameter, so that
    autograd keeps the memory. `DTensor.from_local`, and `to_local` of each parameter, take ten
    times as long; `DTensor.__init__` does nothing, in 14 calls."""
    held, spec = parameter._local_tensor, copy(parameter._spec)  # noqa: SLF001  # see above
    if shard.stride() != held.stride():
        shard = torch.empty_like(held).copy_(shard)
    made: DTensor = DTensor.__new__(DTensor, shard, spec, requires_grad=False)
    return made
