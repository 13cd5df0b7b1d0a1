"""One rank of `bench rtt`: all-reduces by exact and bounded dlcpd, and by Gloo over each TCP."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import dlcp_client
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcp_lab.scenarios.gradients import gradient
from dlcp_lab.scenarios.tcp import Connections

Reduce = Callable[[torch.Tensor], Any]  # waits


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Per phase and contender: seconds of each round, and segments of TCP connections.

    `arguments`: phases (names), contenders (name -> TCP congestion control, or ""), rounds, warmup,
    size in bytes, bound, seed. The barriers around a round that counts are `begin CONTENDER` and
    `end CONTENDER`.
    """
    join_gloo(conductor)
    with _contenders(conductor, arguments) as (reduces, connections):
        rank = _RttRank(conductor, arguments, reduces, connections)
        out = [rank.phase(name) for name in arguments["phases"]]
        conductor.barrier("end")  # a rank that leaves fails unfinished operations of its peers
    dist.destroy_process_group()
    return out


@contextmanager
def _contenders(
    conductor: Conductor, arguments: dict[str, Any]
) -> Iterator[tuple[dict[str, Reduce], dict[str, Connections]]]:
    store = FileStore(f"{conductor.store}.rtt", conductor.world_size)
    policies = {"exact": dlcp_client.exact(), "bounded": dlcp_client.bounded(arguments["bound"])}
    reduces: dict[str, Reduce] = {}
    connections: dict[str, Connections] = {}
    with dlcp_client.connect(store, conductor.rank, conductor.world_size, job="rtt") as session:
        for name, control in arguments["contenders"].items():
            if control:
                with Connections() as made:
                    group = dist.new_group(backend="gloo")
                    dist.all_reduce(torch.ones(1), group=group)
                made.control(control)
                connections[name] = made
                reduces[name] = _gloo(group)
            else:
                reduces[name] = _dlcpd(session, policies[name], name)
        yield reduces, connections
    for made in connections.values():
        made.close()


def _dlcpd(session: dlcp_client.Session, policy: Any, name: str) -> Reduce:
    return lambda tensor: session.all_reduce(tensor, policy=policy, name=name).wait()


def _gloo(group: Any) -> Reduce:
    return lambda tensor: dist.all_reduce(tensor, group=group)


class _RttRank:
    def __init__(
        self,
        conductor: Conductor,
        arguments: dict[str, Any],
        reduces: dict[str, Reduce],
        connections: dict[str, Connections],
    ) -> None:
        self.conductor, self.reduces, self.connections = conductor, reduces, connections
        self.warmup, self.rounds = arguments["warmup"], arguments["rounds"]
        self.order = random.Random(arguments["seed"])  # equal on all ranks
        seed = (arguments["seed"], conductor.rank, 0)
        self.tensor = gradient("noise", arguments["size"], seed=seed)

    def phase(self, name: str) -> dict[str, Any]:
        """Rounds of all contenders, in alternation."""
        self.conductor.barrier(name)
        self.conductor.progress(f"{name}: {self.rounds} rounds")
        for _ in range(self.warmup):
            for contender in self._turns():
                self.conductor.barrier("warm up")
                self.reduces[contender](self.tensor.clone())
        times: dict[str, list[float]] = {contender: [] for contender in self.reduces}
        before = {contender: made.segments() for contender, made in self.connections.items()}
        for _ in range(self.rounds):
            for contender in self._turns():
                times[contender].append(self._round(contender))
        segments = {
            contender: [now - then for now, then in zip(made.segments(), counted, strict=True)]
            for (contender, made), counted in zip(
                self.connections.items(), before.values(), strict=True
            )
        }
        return {"times": times, "segments": segments}

    def _turns(self) -> list[str]:
        turns = list(self.reduces)
        self.order.shuffle(turns)
        return turns

    def _round(self, contender: str) -> float:
        """Seconds of one operation."""
        copy = self.tensor.clone()
        self.conductor.barrier(f"begin {contender}")
        begin = time.perf_counter()
        self.reduces[contender](copy)
        seconds = time.perf_counter() - begin
        self.conductor.barrier(f"end {contender}")
        return seconds
