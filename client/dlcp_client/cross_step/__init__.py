"""Gradients that cross the step: each layer of the next forward pass waits only for its own.

    from dlcp_client import cross_step
    cross_step.register(model, optimizer)

replaces `ddp.register`; the training loop does not change.
"""

from .registration import CrossStepRegistration, register

__all__ = ["CrossStepRegistration", "register"]
