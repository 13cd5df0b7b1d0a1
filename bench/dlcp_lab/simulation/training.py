"""Simulated steps of `fused.register`: each rank computes for set times, and its engine sends.

A bucket is reduced when a backward pass has completed it, `step()` computes the parts of this rank,
and each layer of the next forward pass waits for its weights. An update takes no time.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from dlcp_lab.simulation.burst_network import BurstNetwork, NotCompleted
from dlcp_lab.simulation.cell import CHUNK, SEGMENT
from dlcp_lab.simulation.operation import DEADLINE
from dlcp_lab.simulation.reference import Tensor
from dlcpd.collectives.execution import Execution
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.session.events import OperationDue
from dlcpd.schedules.builders.all_reduce import direct

FORWARD: Final = 1 / 3  # of a step's computation, as of dlcp_lab.replay.pace
CLASS: Final = traffic_classes()["middle"].rank  # see dlcp_client.operations.layers.in_one_class

Wait = float | Callable[[], bool]  # seconds, or what must be true


@dataclass(frozen=True, slots=True)
class SimTraining:
    """Equal layers; a bucket has `per_bucket` of them, and the last layers are in the first."""

    size: int  # bytes of all parameters
    compute: float  # seconds of a step's passes, a third of it forward
    layers: int = 16
    per_bucket: int = 1
    eager: bool = False  # updates within backward passes, as `fused.register(eager=True)`

    @property
    def buckets(self) -> int:
        return self.layers // self.per_bucket


@dataclass(slots=True, eq=False)
class SimStep:
    """When a rank came how far, seconds."""

    backward: float = 0.0  # its backward pass had ended
    updated: float = 0.0  # step() returned
    waited: list[float] = field(default_factory=list)  # by layer: for how long, for its weights


@dataclass(slots=True, eq=False)
class SimTrainer:
    """One rank."""

    network: BurstNetwork
    rank: int
    training: SimTraining
    steps: list[SimStep] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # seconds, of each step
    due: dict[int, list[OperationDue]] = field(default_factory=dict)  # by ticket: not answered
    _memory: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # by bucket
    _operations: dict[int, Execution] = field(default_factory=dict)  # by ticket
    _answered: dict[int, int] = field(default_factory=dict)  # by ticket: steps
    _waiting: Callable[[], bool] | None = None
    _program: Generator[Wait, None, None] = field(init=False)
    _seen: int = 0  # events

    def begin(self, steps: int) -> None:
        """Train for that many steps."""
        count = self.training.size // self.training.buckets // 4
        self._memory = [
            (np.zeros(count, np.float32), np.zeros(count, np.float32))
            for _ in range(self.training.buckets)
        ]
        self._program = self._train(steps)
        self.go_on()

    def go_on(self, _: object = None) -> None:
        """The trainer waits no more."""
        self._waiting = None
        for wait in self._program:
            if isinstance(wait, float):
                self.network.calendar.add(self._now + wait, self.go_on)
                return
            if not wait():
                self._waiting = wait
                return

    def look(self) -> None:
        """Take in new events of the engine."""
        events = self.network.events[self.rank]
        for event in events[self._seen :]:
            if isinstance(event, OperationDue):
                self.due.setdefault(event.ticket, []).append(event)
        self._seen = len(events)
        if self._waiting is not None and self._waiting():
            self._waiting = None
            self.network.calendar.add(self._now, self.go_on)

    @property
    def _now(self) -> float:
        return self.network.calendar.now

    # --- a step -------------------------------------------------------------------------

    def _train(self, steps: int) -> Generator[Wait, None, None]:
        buckets = self.training.buckets
        for number in range(steps):
            self.steps.append(SimStep())
            tickets = [number * buckets + at + 1 for at in range(buckets)]
            yield from self._backward(tickets)
            self.steps[-1].backward = self._now
            while not all(map(self._all_answered, tickets)):
                yield partial(self._any_due, tickets)
                self._compute(tickets)
            self.steps[-1].updated = self._now
            yield from self._forward(tickets)
            self.ends.append(self._now)

    def _backward(self, tickets: Sequence[int]) -> Generator[Wait, None, None]:
        seconds = self.training.compute * (1 - FORWARD) / self.training.layers
        for at, ticket in enumerate(tickets):
            yield seconds * self.training.per_bucket
            self._submit(ticket, *self._memory[at])
            if self.training.eager:
                self._compute(tickets)

    def _forward(self, tickets: Sequence[int]) -> Generator[Wait, None, None]:
        seconds = self.training.compute * FORWARD / self.training.layers
        for ticket in reversed(tickets):
            for _ in range(self.training.per_bucket):
                begun = self._now
                yield partial(self._done, ticket)
                self.steps[-1].waited.append(self._now - begun)
                yield seconds

    # --- operations ---------------------------------------------------------------------

    def _submit(self, ticket: int, gradients: Tensor, weights: Tensor) -> None:
        network, world = self.network, self.network.world_size
        made = network.operation(
            self.rank,
            ticket,
            gradients,
            output=weights,
            program=direct(self.rank, world, gradients.nbytes, CHUNK * SEGMENT, True),
            in_place=False,
            traffic_class=CLASS,
            deadline=DEADLINE,
            digest_every=0,
        )
        network.programs[self.rank, ticket] = made.program
        self._operations[ticket] = made
        network.sessions[self.rank].submit(made, 0, self._now)
        network.wake(self.rank)

    def _compute(self, tickets: Sequence[int]) -> None:
        """Answer what is due, the front layers first."""
        for ticket in reversed(tickets):
            for due in self.due.pop(ticket, ()):
                self._answered[ticket] = self._answered.get(ticket, 0) + 1
                self._operations[ticket].on_computed(due.step, self._now)
        self.network.wake(self.rank)

    def _any_due(self, tickets: Sequence[int]) -> bool:
        return any(self.due.get(ticket) for ticket in tickets)

    def _all_answered(self, ticket: int) -> bool:
        return self._answered.get(ticket, 0) == self._operations[ticket].program.computed

    def _done(self, ticket: int) -> bool:
        return self.rank in self.network.done_at.get(ticket, {})


def train(network: BurstNetwork, training: SimTraining, steps: int) -> list[SimTrainer]:
    """Train on all ranks of a new network, until they have ended that many steps.

    Raises: NotCompleted.
    """
    trainers = [SimTrainer(network, rank, training) for rank in range(network.world_size)]
    network.on_events = lambda rank: trainers[rank].look()
    for trainer in trainers:
        trainer.begin(steps)
    network.run(DEADLINE, enough=lambda: all(len(trainer.ends) == steps for trainer in trainers))
    if any(len(trainer.ends) < steps for trainer in trainers):
        raise NotCompleted(f"{steps} steps take longer than {DEADLINE:g} s")
    return trainers


def share(network: BurstNetwork, training: SimTraining, trainers: Sequence[SimTrainer]) -> float:
    """The part of the bound that the steps after the first two reach: 1 is the longer of a step's
    computation and of its bytes on a wire, without headers. The slowest rank counts."""
    ranks, rate = network.world_size, network.plan.up.rate_bps
    line = training.size * 8 * 2 * (ranks - 1) / ranks / rate
    steps = len(trainers[0].ends) - 2
    first, last = (max(trainer.ends[at] for trainer in trainers) for at in (1, -1))
    return max(line, training.compute) * steps / (last - first)
