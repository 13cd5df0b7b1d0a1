"""Gradients of DistributedDataParallel through dlcpd, with two lines in a training script.

They are `from dlcp_client import ddp` and `ddp.register(model)`.
"""

from .registration import Registration, register

__all__ = ["Registration", "register"]
