"""Guards a training against the error of bounded operations.

    ddp.register(model, bounded(0.01), guard=Guard(every=100, max_error=0.05))

It is an option of `register` of ddp, cross_step and fsdp. This module needs no torch;
`guard.watch`, which takes the samples, does.
"""

from .options import Guard, checked_guard

__all__ = ["Guard", "checked_guard"]
