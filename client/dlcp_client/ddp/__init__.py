"""Gradients of DistributedDataParallel through dlcpd, with two lines in a training script.

They are `from dlcp_client import ddp` and `ddp.register(model)`.
"""

from .registration import DDPRegistration, register

__all__ = ["DDPRegistration", "register"]
