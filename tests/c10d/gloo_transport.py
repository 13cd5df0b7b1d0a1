"""A stand-in for the transport: groups over PyTorch's Gloo, in a process group of its own each.

It runs the backend where only the backend is under test, and gives the baseline of what a
third-party backend can pass of PyTorch's own suite.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.futures import Future

from dlcpd.contract.errors import DeadlineExceeded, PeerLost, SessionClosed
from dlcpd.contract.policy import EXACT, LossPolicy

OPS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


class GlooWork:
    """Some works of Gloo, and what makes of their results what the transport promises."""

    def __init__(
        self,
        works: Sequence[Any],
        policy: LossPolicy,
        finish: Callable[[], object] | None = None,
        *,
        receives: bool = False,
    ) -> None:
        self.works, self._finish = works, [finish] if finish else []
        self._deadline = time.monotonic() + policy.deadline
        self._lock, self._receives = threading.Lock(), receives
        self.source = -1

    def wait(self, timeout: float | None = None) -> bool:
        now = time.monotonic()
        until = self._deadline if timeout is None else min(self._deadline, now + timeout)
        for work in self.works:
            self._wait_for(work, until)
        with self._lock:
            steps, self._finish = self._finish, []
            for step in steps:
                step()
        return True

    def then(self, step: Callable[[], object]) -> None:
        """Run `step` at the end, after those before."""
        self._finish.append(step)

    def done(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def get_future(self) -> "Future[Any]":
        base: Future[None] = Future()
        made = base.then(lambda _: self.wait())

        def complete() -> None:
            try:
                self.wait()
            finally:
                base.set_result(None)

        threading.Thread(target=_quietly(complete), daemon=True).start()
        return made

    def _wait_for(self, work: Any, until: float) -> None:
        left = timedelta(milliseconds=max(1, int((until - time.monotonic()) * 1000)))
        try:
            work.wait(left)
        except RuntimeError as exc:
            if "imed out" not in str(exc):
                raise PeerLost(str(exc)) from exc
            if until < self._deadline:
                raise TimeoutError(str(exc)) from exc
            raise DeadlineExceeded(str(exc)) from exc
        if self._receives:
            self.source = int(work._source_rank())  # noqa: SLF001  # torch's own way to it


def of_one_tensor(method: Callable[..., GlooWork]) -> Callable[..., GlooWork]:
    """Wrap an operation, as Gloo takes one tensor: tuples are concatenated, and copied back."""

    @wraps(method)
    def call(self: "GlooGroup", *given: Any, **options: Any) -> GlooWork:
        joined = [torch.cat(each) if isinstance(each, tuple) else each for each in given]
        work = method(self, *joined, **options)
        for each, whole in zip(given, joined, strict=True):
            if isinstance(each, tuple):
                work.then(partial(_copy_back, each, whole))
        return work

    return call


def _copy_back(parts: tuple[torch.Tensor, ...], whole: torch.Tensor) -> None:
    with torch.inference_mode():
        for part, values in zip(parts, torch.split(whole, [p.numel() for p in parts]), strict=True):
            part.copy_(values)


class GlooGroup:
    """A transport.Group."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=60))
        self._open = True

    @of_one_tensor
    def all_reduce(self, tensor: Any, op: str, *, policy: LossPolicy, layers: Any = ()) -> GlooWork:
        opts = dist.AllreduceOptions()
        opts.reduceOp, opts.timeout = OPS[op], self._left(policy)
        average = (lambda: tensor.div_(self.size)) if op == "avg" else None
        return GlooWork([self._gloo.allreduce([tensor], opts)], policy, average)

    @of_one_tensor
    def reduce(self, tensor: Any, root: int, op: str, *, policy: LossPolicy) -> GlooWork:
        scratch = tensor if root == self.rank else tensor.clone()
        return self.all_reduce(scratch, op, policy=policy)

    @of_one_tensor
    def broadcast(self, tensor: Any, root: int, *, policy: LossPolicy) -> GlooWork:
        opts = dist.BroadcastOptions()
        opts.rootRank, opts.timeout = root, self._left(policy)
        return GlooWork([self._gloo.broadcast([tensor], opts)], policy)

    @of_one_tensor
    def all_gather(
        self,
        output: Any,
        input: Any,
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> GlooWork:
        parts = torch.split(output, list(sizes or self._even(output)))
        parts[self.rank].copy_(input)
        works = []
        for root, part in enumerate(parts):
            opts = dist.BroadcastOptions()
            opts.rootRank, opts.timeout = root, self._left(policy)
            works.append(self._gloo.broadcast([part], opts))
        return GlooWork(works, policy)

    @of_one_tensor
    def gather(self, output: Any, input: Any, root: int, *, policy: LossPolicy) -> GlooWork:
        opts = dist.GatherOptions()
        opts.rootRank, opts.timeout = root, self._left(policy)
        outputs = [list(output.chunk(self.size))] if output is not None else []
        return GlooWork([self._gloo.gather(outputs, [input], opts)], policy)

    @of_one_tensor
    def scatter(self, output: Any, input: Any, root: int, *, policy: LossPolicy) -> GlooWork:
        opts = dist.ScatterOptions()
        opts.rootRank, opts.timeout = root, self._left(policy)
        inputs = [list(input.chunk(self.size))] if input is not None else []
        return GlooWork([self._gloo.scatter([output], inputs, opts)], policy)

    @of_one_tensor
    def reduce_scatter(
        self,
        output: Any,
        input: Any,
        op: str,
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        layers: Iterable[Any] = (),
    ) -> GlooWork:
        total = input.clone()
        work = self.all_reduce(total, op, policy=policy)
        mine = torch.split(total, list(sizes or self._even(input)))[self.rank]

        def finish() -> None:
            work.wait()
            output.copy_(mine)

        return GlooWork(work.works, policy, finish)

    @of_one_tensor
    def all_to_all(
        self,
        output: Any,
        input: Any,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> GlooWork:
        opts = dist.AllToAllOptions()
        opts.timeout = self._left(policy)
        splits = [list(output_splits or []), list(input_splits or [])]
        return GlooWork([self._gloo.alltoall_base(output, input, *splits, opts)], policy)

    @of_one_tensor
    def send(self, tensor: Any, peer: int, tag: int, *, policy: LossPolicy) -> GlooWork:
        self._left(policy)
        return GlooWork([self._gloo.send([tensor], peer, tag)], policy)

    @of_one_tensor
    def receive(self, tensor: Any, peer: int | None, tag: int, *, policy: LossPolicy) -> GlooWork:
        self._left(policy)
        if peer is None:
            return GlooWork([self._gloo.recv_anysource([tensor], tag)], policy, receives=True)
        return GlooWork([self._gloo.recv([tensor], peer, tag)], policy)

    def barrier(self, *, policy: LossPolicy) -> GlooWork:
        opts = dist.BarrierOptions()
        opts.timeout = self._left(policy)
        return GlooWork([self._gloo.barrier(opts)], policy)

    def close(self) -> None:
        self._open = False

    def _even(self, tensor: Any) -> list[int]:
        return [tensor.numel() // self.size] * self.size

    def _left(self, policy: LossPolicy) -> timedelta:
        if not self._open:
            raise SessionClosed("closed")
        return timedelta(seconds=policy.deadline)


class GlooTransport:
    """A transport.Transport."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self._store, self._rank, self._groups = store, rank, Counter[str]()

    def group(self, ranks: Sequence[int], name: str, *, timeout: float) -> GlooGroup:
        self._groups[name] += 1  # PyTorch may give the name of a destroyed group to another
        store = PrefixStore(f"gloo/{name}/{self._groups[name]}", self._store)
        return GlooGroup(store, list(ranks).index(self._rank), len(ranks))

    def close(self) -> None:
        """Gloo ends with its last object."""


def _quietly(run: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        try:
            run()
        except Exception:
            return

    return call
