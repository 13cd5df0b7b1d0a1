"""PowerSGD: gradients of matrices as products of two narrow ones.

    ddp.register(model, low_rank=PowerSGD(rank=4))

It is an option of `ddp.register`. This module needs no torch; `low_rank.products`, which computes
the products, does.
"""

from .options import PowerSGD, checked_low_rank

__all__ = ["PowerSGD", "checked_low_rank"]
