"""Training with a parameter server: workers push gradients and pull parameters.

    from dlcp_client import ps
    ps.register(model, optimizer)

with the plain model; the servers (`dlcpd server`) then perform `optimizer.step()`. See
docs/parameter-server.md. Without torch: `connect`, for numpy arrays.
"""

from typing import TYPE_CHECKING, Any

from .client import Client, NamedTensor
from .participation import connect
from .specs import OptimizerSpec, adam, adamw, lamb, sgd

if TYPE_CHECKING:
    from .registration import PSRegistration, register

__all__ = [
    "Client",
    "NamedTensor",
    "OptimizerSpec",
    "PSRegistration",
    "adam",
    "adamw",
    "connect",
    "lamb",
    "register",
    "sgd",
]


def __getattr__(name: str) -> Any:
    """Import `register` on first use: it needs torch, the rest does not."""
    if name not in ("PSRegistration", "register"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import registration  # noqa: PLC0415  # needs torch

    return getattr(registration, name)
