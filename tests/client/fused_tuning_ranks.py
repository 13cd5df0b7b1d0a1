"""What one rank does in a test of `fused.register(tune=True)`: in a process of its own."""

from math import inf
from typing import Any

from torch import nn

from dlcp_client import Session, fused
from dlcp_client.auto.turns import TURN
from tests.client.ddp_ranks import group
from tests.client.fused_ranks import (
    difference,
    network,
    optimizer_of,
    same,
    session_of,
    small_buckets,
    train,
    weights,
    whole_loop,
)

WAYS = 3
COMPARED = 2 * WAYS * TURN  # steps
STEPS = 1 + COMPARED + 2


class Tiny(nn.Module):
    """Parameters of which some ranks own nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(33, 2), nn.Linear(2, 5))

    def forward(self, words: Any) -> Any:
        return self.net(words)


def compared(rank: int, store: str, world: int) -> dict[str, Any]:
    """Trainings that change their way every few steps, against those that do not."""
    small_buckets()
    found: dict[str, Any] = {}
    with group(rank, store, world), session_of() as session:
        for name in ("SGD", "momentum", "AMSGrad", "AdamW"):
            found[name] = trained(name, network(), network(), rank, session)
        found["tiny"] = trained("Adam", Tiny(), Tiny(), rank, session)
        found["loop"] = whole_loop("AdamW", rank, session, 0.3, tune=True)
        found["scaled"] = whole_loop("AdamW", rank, session, inf, tune=True)
    return found


def trained(
    name: str, net: nn.Module, other: nn.Module, rank: int, session: Session
) -> dict[str, Any]:
    for one in (net, other):
        with_values(one)
    optimizer, reference = optimizer_of(net, name), optimizer_of(other, name)
    handle = fused.register(net, optimizer, session=session, tune=True)
    plain = fused.register(other, reference, session=session)
    train(net, optimizer, rank, range(STEPS))
    train(other, reference, rank, range(STEPS))
    found = {
        "apart": difference(net, other),
        "weights": weights(net).numpy(),
        "state": same(optimizer.state_dict(), reference.state_dict()),
        "explained": handle.explain(),
        "parts": (handle.state_bytes, plain.state_bytes),
    }
    handle.close()
    plain.close()
    found["returned"] = same(optimizer.state_dict(), reference.state_dict())
    return found


def with_values(net: nn.Module) -> None:
    """The same for each net of a shape."""
    for number, parameter in enumerate(net.parameters()):
        nn.init.constant_(parameter, 0.01 * (number + 1))
