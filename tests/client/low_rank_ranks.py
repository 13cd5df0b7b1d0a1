"""What one rank does in a test of PowerSGD: in a process of its own; plain values come back."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import PowerSGD, ddp
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.real import TIMEOUT

WARMUP, STEPS = 2, 7
OVERFLOW = 4  # the step with infinity


def trained(rank: int, store: str) -> dict[str, Any]:
    """The same training with gloo, and by products: weights, and how many values were sent."""
    with group(rank, store):
        plain, ours = model(), model()
        handle = ddp.register(ours, low_rank=PowerSGD(rank=8), warmup_steps=WARMUP, timeout=TIMEOUT)
        session = handle.session
        assert session is not None
        submission = session._connection.submission  # noqa: SLF001
        original, sent = submission.run, list[tuple[int, int]]()

        def listening(*args: Any, **more: Any) -> Any:
            sent.append((handle.step, args[0].input.count))
            return original(*args, **more)

        submission.run = listening  # type: ignore[method-assign]
        for number in range(STEPS):
            for net in (plain, ours):
                step(net, rank, number)
        handle.close()
        steps = [sum(n for at, n in sent if at == number) for number in range(1, STEPS + 1)]
        apart = float((weights(plain) - weights(ours)).abs().max())
        return {"weights": weights(ours).numpy(), "apart": apart, "sent": steps}


class Given(nn.Module):
    """Parameters whose gradients are what its input says."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Parameter(torch.zeros(64, 8, 3, 3)),
            nn.Parameter(torch.zeros(70, 64)),
        )
        self.one.data = self.one.data.to(memory_format=torch.channels_last)
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        kept = (self.one, self.two, self.bias)
        return torch.stack([(p * g).sum() for p, g in zip(kept, gradients, strict=True)]).sum()


def given(rank: int, number: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * number + rank)
    return [torch.randn(shape, generator=generator) for shape in ((64, 8, 3, 3), (70, 64), (64,))]


def conserved(rank: int, store: str) -> dict[str, Any]:
    """Steps on gradients that are given, one of them with infinity: results, and what is left."""
    with group(rank, store):
        net = Given()
        ours = DistributedDataParallel(net, bucket_cap_mb=0.02)  # several buckets
        handle = ddp.register(ours, low_rank=PowerSGD(rank=2), warmup_steps=2, timeout=TIMEOUT)
        results = list[list[torch.Tensor]]()
        for number in range(7):
            gradients = given(rank, number)
            if number == OVERFLOW and rank == 1:
                gradients[1][3, 5] = float("inf")
            ours.zero_grad()
            ours(gradients).backward()
            results.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
        low_rank = handle._low_rank  # noqa: SLF001  # what is left has no public name
        assert low_rank is not None
        missed = [low_rank._memories[id(p)].missed for p in (net.one, net.two)]  # noqa: SLF001
        handle.close()
        return {
            "results": [[g.numpy() for g in grads] for grads in results],
            "missed": [m.numpy() for m in missed],
        }
