"""Whether data reaches every rank: the control plane may, where a firewall drops UDP."""

import time
from typing import Final

import torch

from dlcpd.contract.errors import DeadlineExceeded, PeerLost
from dlcpd.contract.policy import exact

from .session import Session

ELEMENTS: Final = 1024  # of float32: more than one datagram, and so a full one
TIMEOUT: Final = 30.0  # seconds; a peer that does not answer is named after about one
MIN_LEFT: Final = 0.1  # seconds; the engine says best what is missing


def probe(session: Session, deadline: float) -> None:
    """One small exact all-reduce through the engines. Every rank calls it.

    `deadline` is monotonic time. Raises: PeerLost naming the rank, and the address and port
    of UDP, that did not answer; or what else ended the operation.
    """
    left = min(max(deadline - time.monotonic(), MIN_LEFT), TIMEOUT)
    numbers = torch.ones(ELEMENTS)
    try:
        session.all_reduce(numbers, "sum", policy=exact(deadline=left)).wait()
    except (PeerLost, DeadlineExceeded) as exc:
        raise PeerLost(
            f"all ranks joined, but data does not reach rank {session.rank} and back: {exc}. Let "
            f"UDP through between the hosts, in both directions; port= in [network] paths fixes "
            f"the port of a host"
        ) from exc
