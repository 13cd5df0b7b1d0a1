"""Gradients of FSDP2 (`fully_shard`) with bounded loss, overlapped with the backward pass.

Use `fsdp.register(model, bounded(0.01))` in a job with the backend "dlcp". Weights are always
gathered complete.
"""

from .registration import FSDPRegistration, register

__all__ = ["FSDPRegistration", "register"]
