"""What one rank does in a test of `transport="auto"`: in a process of its own; plain values."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, ddp
from dlcp_client.auto.calibration import STEPS, WHOLE, Calibration
from dlcp_client.auto.choice import Way
from dlcp_client.auto.turns import TURN
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.real import TIMEOUT
from tests.client.register_ranks import children, told

FIRST = 3  # step in which the calibration begins
DECIDED = FIRST + STEPS  # sizes take different ways here, so one more turn follows
LARGE = 1 << 20  # bytes
SETTLED = DECIDED + TURN
Seconds = Callable[[Way | None, int], float]  # of a way, or of both together


@contextmanager
def taking(seconds: Seconds) -> Iterator[None]:
    """Everything seems to take what `seconds(way, size)` says: no test is judged by time."""
    note = Calibration.note

    def instead(self: Calibration, way: Way | None, size: int, _: float) -> None:
        note(self, way, size, seconds(way, size))

    with patch.object(Calibration, "note", instead):
        yield


@contextmanager
def watched(handle: ddp.DDPRegistration) -> Iterator[list[tuple[int, Way, int, str, str]]]:
    """What goes which way: step, way, bytes, and of dlcpd the policy's mode and the name."""
    seen: list[tuple[int, Way, int, str, str]] = []
    assert handle.session is not None
    ours = handle.session.all_reduce

    def by_dlcpd(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
        seen.append((handle.step, "dlcp", tensor.nbytes, more["policy"].mode, more["name"]))
        return ours(tensor, *args, **more)

    def by_backend(process_group: dist.ProcessGroup, bucket: GradBucket) -> Any:
        seen.append((handle.step, "backend", bucket.buffer().nbytes, "", ""))
        return allreduce_hook(process_group, bucket)

    handle.session.all_reduce = by_dlcpd  # type: ignore[method-assign]
    with patch("dlcp_client.ddp.registration.allreduce_hook", by_backend):
        yield seen


def patient(store: str, rank: int) -> Path:
    """A configuration: a host without a core for a second is no dead peer."""
    file = Path(f"{store}.{rank}.toml")
    file.write_text("[network]\npeer_timeout = 10.0\n")
    return file


def contradicting(rank: int) -> Seconds:
    """Each rank alone would choose the opposite of what the slowest of both says."""

    def seconds(way: Way | None, size: int) -> float:
        if way is None:
            return 0.15
        if size == WHOLE:
            return {"dlcp": 0.2, "backend": 0.3}[way]
        if size >= LARGE:  # 0.009 and 0.020: dlcpd
            return {"dlcp": (0.009, 0.001), "backend": (0.005, 0.020)}[way][rank]
        return {"dlcp": (0.001, 9.0), "backend": (0.002, 5.0)}[way][rank]  # 9 and 5: the backend

    return seconds


def ranks_that_measure_differently(rank: int, store: str) -> dict[str, Any]:
    """A training with plain DDP, and with "auto"; what was chosen, and what went which way."""
    with group(rank, store), taking(contradicting(rank)):
        plain, ours = model(), model()
        handle = ddp.register(ours, transport="auto", timeout=TIMEOUT, config=patient(store, rank))
        nothing = str(handle.transports)
        with watched(handle) as seen:
            for number in range(SETTLED + 2):
                for net in (plain, ours):
                    step(net, rank, number)
        handle.close()
        for net in (plain, ours):
            step(net, rank, SETTLED + 2)
        apart = float((weights(plain) - weights(ours)).abs().max())
        rows = [(one.size, one.chosen) for one in handle.transports.sizes]
        return {
            "seen": [row[:3] for row in seen],
            "apart": apart,
            "weights": weights(ours).numpy(),
            "rows": rows,
            "table": str(handle.transports),
            "before": nothing,
        }


class Product(nn.Module):
    """Its gradients are what it is called with, exactly."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.large = nn.Parameter(torch.zeros(1024, 512, dtype=dtype))
        self.small = nn.Parameter(torch.zeros(128, 128, dtype=dtype))

    def forward(self, large: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
        return (self.large * large).sum() + (self.small * small).sum()


def product(dtype: torch.dtype) -> DistributedDataParallel:
    """The two parameters have a bucket each."""
    return DistributedDataParallel(Product(dtype), bucket_cap_mb=0.01)


def drawn(rank: int, number: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Whole numbers: their sums are exact."""
    torch.manual_seed(100 * number + rank)
    shapes = (1024, 512), (128, 128)
    return [torch.randint(-8, 9, shape).to(dtype) for shape in shapes]


def small_by_dlcpd(way: Way | None, size: int) -> float:
    """All by the backend in the end, but what is small."""
    if size == WHOLE:
        return 0.1
    return 0.001 if (way == "dlcp") == (size < LARGE // 2) else 0.002


def gradients_of_every_step(rank: int, store: str, dtypes: list[torch.dtype]) -> list[Any]:
    """By dtype: steps whose gradients are not the average, dtypes of gradients, and the ways."""
    out = []
    with group(rank, store), taking(small_by_dlcpd):
        for dtype in dtypes:
            net, wrong, kinds = product(dtype), [], set()
            handle = ddp.register(
                net, transport="auto", timeout=TIMEOUT, config=patient(store, rank)
            )
            with watched(handle) as seen:
                for number in range(1, DECIDED + 2):
                    net.zero_grad()
                    net(*drawn(rank, number, dtype)).backward()
                    sums = zip(drawn(0, number, dtype), drawn(1, number, dtype), strict=True)
                    for parameter, (a, b) in zip(net.parameters(), sums, strict=True):
                        assert parameter.grad is not None
                        kinds.add(parameter.grad.dtype)
                        if not torch.equal(parameter.grad, (a + b) / 2):
                            wrong.append(number)
            handle.close()
            out.append((wrong, kinds == {dtype}, {row[1] for row in seen}, handle.transports.sizes))
    return out


def residuals(rank: int, store: str, config: str) -> dict[str, Any]:
    """A bounded policy under loss until everything large goes by the backend."""
    with group(rank, store), taking(small_by_dlcpd):
        net = product(torch.float32)
        handle = ddp.register(
            net, bounded(0.2), warmup_steps=2, transport="auto", config=config, timeout=TIMEOUT
        )
        got, due = torch.zeros(1024, 512), torch.zeros(1024, 512)
        short = []  # steps after which something is missing
        with watched(handle) as seen:
            for number in range(1, SETTLED + 3):
                net.zero_grad()
                net(*drawn(rank, number, torch.float32)).backward()
                assert net.module.large.grad is not None
                got += net.module.large.grad
                for each in (0, 1):
                    due += drawn(each, number, torch.float32)[0] / 2
                if not torch.equal(got, due):
                    short.append(number)
        ledger = handle.ledger
        handle.close()
        return {
            "short": short,
            "waived": ledger.waived,
            "reapplied": ledger.reapplied,
            "seen": [(at, way, *asked) for at, way, size, *asked in seen if size >= LARGE],
        }


def by_the_backend(rank: int, store: str) -> dict[str, Any]:
    """`transport="backend"`, where no daemon could be found."""
    with group(rank, store), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain, ours = model(), model()
        before = children()
        handle = ddp.register(ours, transport="backend", socket="/nonexistent/dlcpd.sock")
        for number in range(3):
            for net in (plain, ours):
                step(net, rank, number)
        handle.close()
        return {
            "equal": torch.equal(weights(plain), weights(ours)),
            "started": children() - before,
            "session": handle.session,
            "warnings": [str(one.message) for one in caught],
            "table": handle.transports.sizes,
        }


def asking_for_different_things(rank: int, store: str) -> dict[str, Any]:
    """Rank 1 asks for "auto", rank 0 for nothing."""
    options: dict[str, Any] = {"transport": "auto"} if rank else {}
    with group(rank, store):
        net = model()
        error = told(lambda: ddp.register(net, timeout=TIMEOUT, **options))
        return {"error": error, "children": children()}
