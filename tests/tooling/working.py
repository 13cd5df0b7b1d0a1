"""A rank that takes bounded steps until it is told to end, or its daemon ends. Needs no torch.

RANK, WORLD_SIZE, DLCPD_STORE and DLCPD_SOCKET say who and where.
"""

import sys
import time
from pathlib import Path

import dlcp_client.numpy
from dlcp_client.numpy import bounded
from dlcpd.contract.errors import DlcpError

ELEMENTS = 1 << 18  # 1 MiB: many segments
PAUSE = 0.02  # seconds between steps, so that the ledger of a test stays small


def work(joined: Path) -> None:
    """Raises: DlcpError."""
    with dlcp_client.numpy.connect(timeout=50.0) as session:
        gradient = session.zeros(ELEMENTS)
        while True:
            gradient[:] = session.rank + 1
            session.all_reduce(gradient, "avg", policy=bounded(0.05), name="gradient").wait()
            joined.touch()
            time.sleep(PAUSE)


try:
    work(Path(sys.argv[1]))
except DlcpError as exc:
    print(f"{exc.code}: {exc}", flush=True)
