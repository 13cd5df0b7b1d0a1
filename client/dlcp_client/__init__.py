"""dlcp_client: all-reduce gradients through dlcpd, exactly or with bounded loss.

    session = dlcp_client.connect()
    session.all_reduce(gradient, "avg").wait()

For DistributedDataParallel: `from dlcp_client import ddp; ddp.register(model)`; to let gradients
cross the step, `from dlcp_client import cross_step; cross_step.register(model, optimizer)`.

For everything else of PyTorch: `dist.init_process_group("dlcp")`, a backend that the import of
this package registers, with torch or as soon as torch is imported.

Without torch: `dlcp_client.numpy`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlcp_client.guard import Guard
from dlcp_client.low_rank import PowerSGD
from dlcp_client.operations.ledger import Ledger
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DaemonLost, DlcpError, PeerLost
from dlcpd.contract.policy import EXACT, LossPolicy, bounded, exact

from . import backend
from .session import Session

if TYPE_CHECKING:
    from dlcp_client import c10d as c10d
    from dlcp_client.joining.torch_ranks import connect

__all__ = [
    "EXACT",
    "DaemonLost",
    "DlcpError",
    "Guard",
    "Ledger",
    "LossPolicy",
    "PeerLost",
    "PowerSGD",
    "Session",
    "Work",
    "bounded",
    "connect",
    "exact",
]


def __getattr__(name: str) -> Any:
    """Import `connect` and `c10d` on first use: they need torch, `dlcp_client.numpy` does not."""
    if name == "c10d":
        return import_module("dlcp_client.c10d")
    if name != "connect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlcp_client.joining.torch_ranks import connect  # noqa: PLC0415  # needs torch

    return connect


backend.register_with_torch()
