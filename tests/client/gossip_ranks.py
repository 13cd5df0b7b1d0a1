"""What one rank does in a test of gossip: runs in its own process, and returns plain values."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dlcp_client import DlcpError, Session, connect, gossip
from dlcp_client.gossip.codecs import Codec
from tests.client.ddp_ranks import group
from tests.client.real import TIMEOUT, kill

STEPS = 6


def model(seed: int = 1, dtype: torch.dtype = torch.float32) -> Any:
    """Parameters of several shapes, one that is not contiguous, a norm with buffers, and one
    parameter that is not trained."""
    torch.manual_seed(seed)
    picture: Any = nn.Conv2d(3, 4, 3)
    net: Any = nn.Sequential(
        picture.to(memory_format=torch.channels_last),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(144, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
    ).to(dtype)
    net[5].bias.requires_grad_(False)
    return net


class Drift(torch.optim.SGD):
    """Adds to every parameter what depends on step and rank alone: what a training would do, so
    that the test can compute what all ranks must hold."""

    def __init__(self, net: nn.Module, rank: int) -> None:
        trained = [p for p in net.parameters() if p.requires_grad]
        super().__init__(trained, lr=0.1)
        self.rank, self.number = rank, 0
        for p in trained:
            p.grad = torch.zeros_like(p)

    def step(self, closure: Any = None) -> Any:
        for p, part in zip(self.param_groups[0]["params"], self.drawn(), strict=True):
            p.grad.copy_(part)
        self.number += 1
        return super().step(closure)

    def drawn(self) -> list[torch.Tensor]:
        seed = torch.Generator().manual_seed(1000 * self.number + self.rank)
        trained = self.param_groups[0]["params"]
        return [torch.randn(p.shape, generator=seed).to(p.dtype) for p in trained]


def trained(net: nn.Module) -> torch.Tensor:
    """A copy of what is exchanged."""
    return torch.cat([p.detach().flatten() for p in net.parameters() if p.requires_grad])


def exchanges(rank: int, store: str, world: int) -> dict[str, Any]:
    """Every graph and codec on one session: what the rank holds after each step."""
    with session_of(rank, store, world) as session:
        return {
            "ring": _exchanged(session, "ring"),
            "exponential": _exchanged(session, "exponential"),
            "own start": _exchanged(session, "exponential", broadcast=False),
            "bf16": _exchanged(session, "ring", codec=gossip.BF16()),
            "top-k": _exchanged(session, "ring", codec=gossip.TopK(0.25)),
            "float64": _exchanged(session, "ring", torch.float64),
            "bfloat16": _exchanged(session, "ring", torch.bfloat16),
        }


def _exchanged(
    session: Session,
    graph: str,
    dtype: torch.dtype = torch.float32,
    *,
    codec: Codec | None = None,
    broadcast: bool = True,
) -> dict[str, Any]:
    net = model(1 + session.rank, dtype)
    optimizer = Drift(net, session.rank)
    begun = trained(net).double()
    handle = gossip.register(
        net, optimizer, session=session, graph=graph, codec=codec, broadcast=broadcast
    )
    start, held = trained(net).double(), []
    net[1].running_mean.fill_(float(session.rank))
    net[1].num_batches_tracked.fill_(session.rank)
    for _ in range(STEPS):
        optimizer.step()
        held.append(trained(net).double().numpy())
    apart = handle.consensus_distance()
    handle.average()
    together = handle.consensus_distance()
    mean, averaged = trained(net).double().numpy(), net[1].running_mean[0].item()
    optimizer.step()  # estimates follow an average
    after = trained(net).double().numpy()
    said = {
        "begun": begun.numpy(),
        "start": start.numpy(),
        "held": held,
        "apart": apart,
        "together": together,
        "mean": mean,
        "after": after,
        "steps": handle.step,
        "sent": handle.sent_bytes,
        "metrics": handle.metrics(),
        "buffer": averaged,
        "frozen": net[5].bias.double().numpy(),
        "counted": int(net[1].num_batches_tracked),
        "gap": handle.graph.spectral_gap,
    }
    handle.close()
    handle.close()
    optimizer.step()  # and exchanges no more
    said["alone"] = float((trained(net).double() - torch.from_numpy(after)).abs().max())
    return said


def losing_a_neighbour(rank: int, store: str) -> dict[str, Any]:
    """Rank 2's daemon is killed before the third step; what each step left of the model."""
    said: list[str] = []
    kept: list[bool] = []  # of each step that failed: whether only the optimizer changed the model
    with session_of(rank, store, 3, leave_together=False) as session:
        net = model()
        optimizer = Drift(net, rank)
        before: list[torch.Tensor] = []
        optimizer.register_step_post_hook(lambda *_: before.append(trained(net)))
        handle = gossip.register(net, optimizer, session=session)
        for number in range(4):
            if number == 2 and rank == 2:
                kill(session.daemon_pid)
                while session.failure() is None:  # its engine may outlive it by a moment
                    time.sleep(0.01)
            try:
                optimizer.step()
            except DlcpError as exc:
                said.append(f"{type(exc).__name__}: {exc}")
                kept.append(torch.equal(trained(net), before[-1]))
            else:
                said.append("fine")
        steps = handle.step
        handle.close()
        return {"said": said, "kept": kept, "steps": steps}


@contextmanager
def session_of(
    rank: int, store: str, world: int, *, leave_together: bool = True
) -> Iterator[Session]:
    """A host without a core for a second is no dead peer."""
    patient = Path(f"{store}.{rank}.toml")
    patient.write_text("[network]\npeer_timeout = 6.0\n")
    with (
        group(rank, store, world),
        connect(timeout=TIMEOUT, arena_bytes=64 << 20, config=patient) as session,
    ):
        yield session
        if leave_together:
            dist.barrier()
