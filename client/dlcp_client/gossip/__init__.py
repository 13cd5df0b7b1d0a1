"""Decentralised SGD: in each step, a rank averages its parameters with its neighbours only.

    from dlcp_client import gossip
    gossip.register(model, optimizer)

with the plain model, without DistributedDataParallel. docs/gossip.md says when that pays.
"""

from .codecs import BF16, Codec, TopK
from .graphs import Graph, exponential, ring
from .registration import GossipRegistration, register

__all__ = [
    "BF16",
    "Codec",
    "GossipRegistration",
    "Graph",
    "TopK",
    "exponential",
    "register",
    "ring",
]
