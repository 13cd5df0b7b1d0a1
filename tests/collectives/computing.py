"""Clients of a simulated network that compute the steps of their operations when they please."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.collectives.execution import Execution
from dlcpd.core.session.events import OperationDue
from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.builders.hierarchical import Hosts, hierarchical
from dlcpd.schedules.model import Compute
from dlcpd.schedules.proof.interpreter import Computation

PAUSE = 400e-6  # seconds: the longest time between two looks of the clients
MOST_LOOKS = 20_000


@dataclass
class SimClients:
    """Every client computes by `compute`, in an order and after times that `seed` determines."""

    net: SimNetwork
    compute: Computation
    seed: int = 0
    mute: frozenset[int] = frozenset()  # ranks that never answer
    operations: dict[tuple[int, int], Execution] = field(default_factory=dict)  # rank, ticket
    due: list[tuple[int, OperationDue]] = field(default_factory=list)  # rank, event; not answered
    computed: int = 0
    _seen: list[int] = field(default_factory=list)  # by rank: events that were looked at

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._seen = [0] * self.net.world_size

    def submit_all(
        self, number: int, parts: list[np.ndarray], *, hosts: Hosts = (), **options: Any
    ) -> list[np.ndarray]:
        """An all-reduce with a computation, hierarchical if there are `hosts`; returns the memory
        of the results."""
        world, chunk = self.net.world_size, self.net.segment_size * self.net.chunk_segments
        outputs = [np.full_like(part, 7) for part in parts]
        for rank, (part, output) in enumerate(zip(parts, outputs, strict=True)):
            program = (
                hierarchical(rank, hosts, part.nbytes, chunk, True)
                if hosts
                else direct(rank, world, part.nbytes, chunk, True)
            )
            made = self.net.operation(
                rank, number, part, output=output, program=program, in_place=False, **options
            )
            self.net.programs[rank, number] = made.program
            self.net.sessions[rank].submit(made, 0, self.net.now)
            self.operations[rank, number] = made
        return outputs

    def look(self) -> None:
        """Note the steps that have become due."""
        for rank, events in enumerate(self.net.events):
            new = events[self._seen[rank] :]
            self._seen[rank] = len(events)
            self.due += [(rank, e) for e in new if isinstance(e, OperationDue)]

    def answer(self, rank: int, due: OperationDue) -> bool:
        """Compute a step. False: the engine does not wait for it."""
        operation = self.operations[rank, due.ticket]
        step = operation.program.steps[due.step]
        assert isinstance(step, Compute)
        assert (step.target.start, step.target.size) == (due.start, due.size)
        given, output = operation.memory
        where = slice(due.start, due.start + due.size)
        self.compute(rank, step, given[where], output[where])
        self.computed += 1
        return operation.on_computed(due.step, self.net.now)

    def sums(self, number: int) -> np.ndarray:
        """What the owners computed from, put together."""
        whole = np.zeros_like(self.operations[0, number].memory[0])
        for rank in range(self.net.world_size):
            operation = self.operations[rank, number]
            for step in operation.program.steps:
                if isinstance(step, Compute):
                    part = slice(step.source.start, step.source.start + step.source.size)
                    whole[part] = operation.memory[0][part]
        return whole.view(np.float32)

    def run(self) -> None:
        """Until every operation is over."""
        world = self.net.world_size
        for _ in range(MOST_LOOKS):
            self.net.run(until=self._rng.uniform(0, PAUSE))
            self.look()
            ready = [pair for pair in self.due if pair[0] not in self.mute]
            for rank, due in self._rng.sample(ready, self._rng.randint(0, len(ready))):
                self.due.remove((rank, due))
                failed = due.ticket in self.net.failed(rank)
                assert self.answer(rank, due) != failed
                assert not self.operations[rank, due.ticket].on_computed(due.step, self.net.now)
            over = [{**self.net.done(rank), **self.net.failed(rank)} for rank in range(world)]
            if all(ticket in over[rank] for rank, ticket in self.operations):
                break
            self.net.now += PAUSE / 10  # a network at rest does not move its clock
        self.net.run()
