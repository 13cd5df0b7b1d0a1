"""One rank of a scenario: rounds of overlapping operations, over dlcpd and Gloo alternately."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import dlcp_client
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.scenarios.gradients import gradient

DLCPD: Final = "dlcpd"
GLOO: Final = "gloo"
COUNTS: Final = ("sent", "retransmitted", "waived", "lost")

Submit = Callable[[dict[str, Any], torch.Tensor], Any]


@dataclass(slots=True)
class PhaseSeries:
    """Rounds of one transport in one phase."""

    times: list[list[float]] = field(default_factory=list)  # per round and operation, seconds
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    energy: list[float] = field(default_factory=list)  # waived fraction of each operation's energy

    def add(self, cost: Any) -> None:
        """Add the counts of one dlcpd operation."""
        for name in COUNTS:
            self.counts[name] += getattr(cost, name)
        self.energy.append(cost.energy)


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Per phase: {transport: series}. `arguments` as in `scenarios.job`."""
    torch.set_num_threads(1)
    if GLOO in arguments["transports"]:
        join_gloo(conductor)
    with _session(conductor, arguments["jobs"]) as session:
        rank = _Rank(conductor, arguments, session)
        out = [rank.phase(phase) for phase in arguments["phases"]]
        conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    if GLOO in arguments["transports"]:
        dist.destroy_process_group()
    return out


def _session(conductor: Conductor, jobs: list[list[int]]) -> dlcp_client.Session:
    """This rank's session in its job; ranks of a job join through a file store."""
    [(number, members)] = [(n, job) for n, job in enumerate(jobs) if conductor.rank in job]
    store = FileStore(f"{conductor.store}.job{number}", len(members))
    return dlcp_client.connect(
        store, members.index(conductor.rank), len(members), job=f"job{number}"
    )


class _Rank:
    def __init__(self, conductor: Conductor, arguments: dict[str, Any], session: Any) -> None:
        self.conductor, self.session = conductor, session
        self.transports, self.seed = arguments["transports"], arguments["seed"]
        self.order = random.Random(self.seed)  # equal on all ranks

    def phase(self, phase: dict[str, Any]) -> dict[str, Any]:
        """`warmup` and `rounds` rounds of the phase's operations."""
        self.conductor.barrier(phase["name"])
        self.conductor.progress(f"{phase['name']}: {phase['rounds']} rounds")
        tensors = [
            gradient(phase["gradient"], op["size"], seed=(self.seed, self.conductor.rank, number))
            for number, op in enumerate(phase["operations"])
        ]
        self.series = {name: PhaseSeries() for name in self.transports}
        for number in range(phase["warmup"] + phase["rounds"]):
            if number == phase["warmup"]:
                self.series = {name: PhaseSeries() for name in self.transports}
            turns = list(self.transports)
            self.order.shuffle(turns)
            for name in turns:
                self._round(name, phase["operations"], tensors)
        return {
            name: {"times": s.times, "counts": s.counts, "energy": s.energy}
            for name, s in self.series.items()
        }

    def _round(
        self, name: str, operations: list[dict[str, Any]], tensors: list[torch.Tensor]
    ) -> None:
        submit: Submit = self._dlcpd if name == DLCPD else self._gloo
        copies = [tensor.clone() for tensor in tensors]
        ended = [0.0] * len(operations)
        self.conductor.barrier("round")
        begin = time.perf_counter()
        works = []
        for number, (op, tensor) in enumerate(zip(operations, copies, strict=True)):
            time.sleep(max(0.0, begin + op["after"] - time.perf_counter()))
            work = submit(op, tensor)
            work.get_future().then(_Note(ended, number, time.perf_counter()))
            works.append(work)
        for work in works:
            work.wait()
        while 0.0 in ended:  # a callback may still be pending
            time.sleep(1e-4)
        series = self.series[name]
        series.times.append(ended)
        if name == DLCPD:
            for work in works:
                series.add(work.stats)

    def _dlcpd(self, op: dict[str, Any], tensor: torch.Tensor) -> Any:
        changes = {"traffic_class": op["class"]}
        policy = (
            dlcp_client.bounded(op["bound"], **changes)
            if op["bound"]
            else dlcp_client.exact(**changes)
        )
        if op["collective"] == "all_reduce":
            how = {"name": op["name"], "schedule": op["schedule"]}
            return self.session.all_reduce(tensor, policy=policy, **how)
        group = self.session.world
        if op["collective"] == "broadcast":
            return group.broadcast(tensor, 0, policy=policy)
        part = torch.empty(len(tensor) // group.size)
        if op["collective"] == "all_gather":
            return group.all_gather(tensor, part.fill_(group.rank), policy=policy)
        return group.reduce_scatter(part, tensor, policy=policy)

    @staticmethod
    def _gloo(op: dict[str, Any], tensor: torch.Tensor) -> Any:
        return dist.all_reduce(tensor, async_op=True)


class _Note:
    """Records the time of an operation, seconds since its submission."""

    def __init__(self, ended: list[float], number: int, begin: float) -> None:
        self.ended, self.number, self.begin = ended, number, begin

    def __call__(self, _: Any) -> np.float64 | float:
        self.ended[self.number] = time.perf_counter() - self.begin
        return self.ended[self.number]
