"""A rank that takes one step per line of its input, and says how it went. Needs no torch.

Run inside the machine, by the Python of the package: RANK, WORLD_SIZE, DLCPD_STORE, DLCPD_SOCKET.
"""

import sys

import numpy as np

import dlcp_client.numpy
from dlcpd.contract.errors import DlcpError

ELEMENTS = 1 << 18  # 1 MiB: a chunk


def train() -> None:
    """Raises: DlcpError."""
    with dlcp_client.numpy.connect(timeout=50.0) as session:
        print("joined", flush=True)
        for _ in sys.stdin:
            gradient = np.full(ELEMENTS, session.rank + 1, np.float32)
            session.all_reduce(gradient).wait()
            print(f"sum {gradient.min():g} {gradient.max():g}", flush=True)


try:
    train()
except DlcpError as exc:
    print(f"{exc.code}: {exc}", flush=True)
