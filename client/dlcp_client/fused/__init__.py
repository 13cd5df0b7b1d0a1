"""The optimizer's update inside the reduction of its gradients, each rank its part.

    from dlcp_client import fused
    fused.register(model, optimizer)

A module and an optimizer of torch; the training loop does not change.
"""

from .entry import register
from .lamb import LAMB
from .registration import FusedRegistration

__all__ = ["LAMB", "FusedRegistration", "register"]
