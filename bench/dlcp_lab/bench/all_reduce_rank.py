"""One rank of `bench all-reduce`: times dlcpd and Gloo alternately, counts wrong elements."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

import dlcp_client
from dlcp_lab.ranks import reference
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.reference import Stored
from dlcp_lab.ranks.tensors import TORCH, as_stored, as_tensor, join_gloo
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.inspection.report import query

DLCPD: Final = "dlcpd"
GLOO: Final = "gloo"
IPV4_UDP: Final = 28  # bytes of headers (RFC 791, RFC 768)
IPV6_UDP: Final = 48  # RFC 8200


@dataclass(slots=True)
class TransportSamples:
    """Samples of one transport at one size."""

    times: list[float] = field(default_factory=list)  # seconds per operation
    wrong: int = 0  # elements; for Gloo beyond the rounding error of another order of addition
    sent: int = 0  # segments, dlcpd only
    retransmitted: int = 0
    waived: int = 0
    reapplied: int = 0
    segment_size: int = 0  # payload bytes per datagram, smallest of all peers
    headers: int = 0  # bytes of headers per datagram: dlcpd, UDP and IP

    def add(self, cost: Any) -> None:
        """Add the counts of one dlcpd operation."""
        self.sent += cost.sent
        self.retransmitted += cost.retransmitted
        self.waived += cost.waived
        self.reapplied += cost.reapplied

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class AllReduceProblem:
    """One all-reduce: this rank's contribution and the expected result."""

    part: Stored
    answer: Stored
    dtype: str
    op: str
    ranks: int

    @classmethod
    def of(cls, count: int, arguments: dict[str, Any], conductor: Conductor) -> "AllReduceProblem":
        dtype, op = arguments["dtype"], arguments["op"]
        ranks = conductor.world_size
        parts = [
            reference.contribution(dtype, count, seed=arguments["seed"], rank=rank)
            for rank in range(ranks)
        ]
        answer = reference.all_reduce(parts, dtype, op)
        return cls(parts[conductor.rank], answer, dtype, op, ranks)


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Per size: {transport: series}."""
    join_gloo(conductor)
    session = dlcp_client.connect()
    try:
        out = []
        for size in arguments["sizes"]:
            conductor.progress(f"{size} B: {arguments['warmup']} + {arguments['repeat']} rounds")
            out.append(_SizeMeasurement(conductor, session, arguments, size).run())
            out[-1][DLCPD] |= datagram_sizes(query(conductor.daemon, 0))
        conductor.barrier()  # a rank that leaves fails unfinished operations of its peers
        return out
    finally:
        session.close()
        dist.destroy_process_group()


def policy_of(arguments: dict[str, Any]) -> dlcp_client.LossPolicy:
    """Policy of the operations; `arguments`: mode, max_loss, codec."""
    if arguments["mode"] == "bounded":
        return dlcp_client.bounded(arguments["max_loss"], codec=arguments["codec"])
    return dlcp_client.exact(codec=arguments["codec"])


def datagram_sizes(report: dict[str, Any]) -> dict[str, int]:
    """From a daemon's status: bytes of payload and of headers per datagram."""
    sizes = [
        peer["segment_size"]
        for session in report["engine"].get("sessions", {}).values()
        for peer in session["peers"]
    ]
    outer = IPV6_UDP if any(":" in host for host, _ in report["endpoints"]["data"]) else IPV4_UDP
    return {"segment_size": min(sizes, default=0), "headers": HEADER_SIZE + outer}


class _SizeMeasurement:
    """All rounds of one size."""

    def __init__(
        self, conductor: Conductor, session: Any, arguments: dict[str, Any], size: int
    ) -> None:
        self.conductor, self.session, self.arguments = conductor, session, arguments
        self.dtype = TORCH[arguments["dtype"]]
        self.count = max(1, size // self.dtype.itemsize)
        self.problem = AllReduceProblem.of(self.count, arguments, conductor)
        self.name = f"bench/{size}"
        self.policy = policy_of(arguments)
        self.private = torch.empty(self.count, dtype=self.dtype)
        self.shared = self._shared() if arguments["arena"] else self.private
        self.order = random.Random(arguments["seed"] ^ size)  # equal on all ranks
        self.series = {name: TransportSamples() for name in self._transports()}

    def _shared(self) -> torch.Tensor:
        tensor: torch.Tensor = self.session.empty(self.count, self.dtype)
        return tensor

    def _transports(self) -> list[str]:
        return [DLCPD] if self.arguments["against"] == "none" else [DLCPD, GLOO]

    def run(self) -> dict[str, Any]:
        for _ in range(self.arguments["warmup"]):
            self._round()
        self.conductor.barrier()
        for series in self.series.values():
            series.times.clear()
        for _ in range(self.arguments["repeat"]):
            self._round()
        return {name: series.plain() for name, series in self.series.items()}

    def _round(self) -> None:
        """One operation per transport, in random order, so that neither always has warm caches."""
        turns = list(self.series)
        self.order.shuffle(turns)
        for name in turns:
            if name == DLCPD:
                if self.arguments["result_only"]:  # peers may still read the last one
                    self.shared = self._shared()
                self._time(name, self.shared, self._dlcpd)
            else:
                self._time(name, self.private, self._gloo)

    def _time(
        self, name: str, tensor: torch.Tensor, operation: Callable[[torch.Tensor], None]
    ) -> None:
        tensor.copy_(as_tensor(self.problem.part, self.problem.dtype))
        if not self.arguments["back_to_back"]:
            self.conductor.barrier()
        begin = time.perf_counter()
        operation(tensor)
        self.series[name].times.append(time.perf_counter() - begin)
        self.series[name].wrong += self._wrong(name, as_stored(tensor))

    def _dlcpd(self, tensor: torch.Tensor) -> None:
        work = self.session.all_reduce(
            tensor,
            self.problem.op,
            policy=self.policy,
            name=self.name,
            result_only=self.arguments["result_only"],
        )
        work.wait()
        self.series[DLCPD].add(work.stats)

    def _gloo(self, tensor: torch.Tensor) -> None:
        if self.problem.op == "avg":  # Gloo has no avg; DDP divides as well
            dist.all_reduce(tensor)
            tensor.div_(self.problem.ranks)
            return
        dist.all_reduce(tensor, getattr(dist.ReduceOp, self.problem.op.upper()))

    def _wrong(self, name: str, result: Stored) -> int:
        problem = self.problem
        if name == DLCPD and self.policy.codec:
            different = ~np.isfinite(result)  # rounded; the last rounding error is reapplied
        elif name == DLCPD:
            different = reference.differing(result, problem.answer)
        else:
            different = reference.far(result, problem.answer, problem.dtype, problem.ranks)
        return int(np.count_nonzero(different))
