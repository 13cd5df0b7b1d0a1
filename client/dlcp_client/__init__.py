"""dlcp_client: all-reduce gradients through dlcpd, exactly or with bounded loss.

    session = dlcp_client.connect()
    session.all_reduce(gradient, "avg").wait()

For DistributedDataParallel: `from dlcp_client import ddp; ddp.register(model)`; to let gradients
cross the step, `from dlcp_client import cross_step; cross_step.register(model, optimizer)`.

For everything else of PyTorch: `dist.init_process_group("dlcp")`, a backend that the import of
this package registers.
"""

from dlcp_client.job.joining import connect
from dlcp_client.operations.ledger import Ledger
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DaemonLost, DlcpError, PeerLost
from dlcpd.contract.policy import EXACT, LossPolicy, bounded, exact

from . import c10d
from .guard import Guard
from .session import Session

__all__ = [
    "EXACT",
    "DaemonLost",
    "DlcpError",
    "Guard",
    "Ledger",
    "LossPolicy",
    "PeerLost",
    "Session",
    "Work",
    "bounded",
    "connect",
    "exact",
]

c10d.register()
