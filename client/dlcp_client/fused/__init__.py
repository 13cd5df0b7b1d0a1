"""The optimizer's update inside the reduction of its gradients, each rank its part.

    from dlcp_client import fused
    fused.register(model, optimizer)

A plain module and an optimizer of torch; the training loop does not change.
"""

from .registration import FusedRegistration, register

__all__ = ["FusedRegistration", "register"]
