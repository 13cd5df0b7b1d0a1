"""What torch.compile needs so that graphs of DTensor overlap products and communication."""

from typing import Any

from dlcp_client.quantities import whole


def inductor_options(pieces: int = 0) -> dict[str, Any]:
    """Options of `torch.compile(model, options=...)`, for tensor parallelism of DTensor.

    In forward and backward graphs, products of matrices whose sums, or whose rows, travel over
    groups of backend "dlcp" then do so in pieces, each while others are computed.

    Args:
        pieces: number of pieces of each product; 0: by size, and small ones stay as they are.

    Raises: BadConfig.
    """
    from .compiled import OverlapPass  # noqa: PLC0415  # inductor takes half a second

    return {"post_grad_custom_pre_pass": OverlapPass(whole("pieces", pieces))}
