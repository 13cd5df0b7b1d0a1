"""A rank that takes as many steps as a line of its input says, then prints "done". Needs no torch.

RANK, WORLD_SIZE, DLCPD_STORE, DLCPD_SOCKET; the job's name is its argument.
"""

import sys
import time

import numpy as np

import dlcp_client.numpy
from dlcp_client.numpy import bounded
from dlcpd.contract.errors import DlcpError

LAYERS = ("head.weight", "block3.weight", "block2.weight", "block1.weight")
ELEMENTS = 1 << 18  # 1 MiB of each
PAUSE = 0.01  # seconds of computing


def train() -> None:
    """Raises: DlcpError."""
    with dlcp_client.numpy.connect(job=sys.argv[1], timeout=50.0) as session:
        print("joined", flush=True)
        gradients = [np.ones(ELEMENTS, np.float32) for _ in LAYERS]
        for line in sys.stdin:
            for _ in range(int(line)):
                time.sleep(PAUSE)
                works = [
                    session.all_reduce(gradient, "avg", policy=bounded(0.02), name=name)
                    for gradient, name in zip(gradients, LAYERS, strict=True)
                ]
                for work in works:
                    work.wait()
            print("done", flush=True)


try:
    train()
except DlcpError as exc:
    print(f"{exc.code}: {exc}", flush=True)
