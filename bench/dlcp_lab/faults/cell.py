"""One cell of the matrix: a fault in a phase of an operation, its outcome on every rank, its leaks,
and whether the next operation or the next job works."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation.patience import patience
from dlcp_lab.faults import leaks
from dlcp_lab.faults.catalog import make
from dlcp_lab.faults.cluster import ANSWER, Cluster, TrainerJob, raise_unless
from dlcp_lab.faults.injections import Injection
from dlcp_lab.faults.kinds import PAUSES, Fault, Mode, Phase
from dlcp_lab.faults.rules import ANY, Drop, Passage, Rule, Way
from dlcp_lab.faults.trainer import RESULT, Outcome
from dlcpd.core.wire.header import Header, Kind

VICTIM: Final = 1  # host and rank with the fault, between two without
WORLD: Final = 3
PATHS: Final = 2
COUNT: Final = 3 << 16  # elements: a chunk per rank, so that transfer 0 is a contribution
DEADLINE: Final = 10.0  # seconds of an operation
JOIN: Final = 4.0  # seconds to join, in the cells in which the join fails
OPERATION: Final = 3  # its number on the wire, after a probe of the data path and a good one
CONTRIBUTION, RESULTS = 0, 1  # numbers of transfers
LOST_SEGMENT: Final = 3  # the segment that may be waived
HELD: Final = 1.5  # seconds: long enough for a suspicion
SET_OFF: Final = 30.0  # seconds in which a phase is reached, on an idle machine
SLACK: Final = 32 * leaks.MB  # of private memory: heaps of trainers fragment, caches fill
# Pauses that end by themselves: seconds.
PASSING: Final = {Fault.PAUSE_TRAINER: HELD, Fault.PAUSE_DAEMON: HELD, **PAUSES}


@dataclass(slots=True)
class Seen:
    """Outcome of a cell."""

    survivors: list[str] = field(default_factory=list)  # codes, of the other ranks
    victim: str = ""  # code
    seconds: float | None = None  # from the fault to the last survivor's error; None: no error
    then: str = ""  # the next operation works in: "same session" or "new job"
    fired: int = 0
    leaks: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of errors


class Cell:
    """Runs one cell once, on an intact cluster."""

    def __init__(
        self, cluster: Cluster, job: TrainerJob, fault: Fault, phase: Phase, mode: Mode
    ) -> None:
        self.cluster, self.job = cluster, job
        self.fault, self.phase, self.mode = fault, phase, mode
        self.injection: Injection = make(fault, cluster, job, VICTIM)
        self._begun = 0.0
        self._bounded = mode is Mode.BOUNDED
        self._deadline = DEADLINE + PAUSES.get(fault, 0)

    def run(self) -> Seen:
        """Run the cell. Raises: TimeoutError if a rank hangs; DlcpError if the next job fails."""
        before = leaks.held(self._processes())
        folders = leaks.folders()
        seen = Seen()
        try:
            outcomes = self._joining() if self.phase is Phase.JOINING else self._operation()
        finally:
            self.injection.end()
        self._note(outcomes, seen)
        self._next(outcomes, seen)
        seen.leaks = leaks.settled(lambda: self._left(before, folders))
        seen.fired = self.injection.fired
        return seen

    def _joining(self) -> list[Outcome]:
        self._begin()
        self.job.begin_join(JOIN)
        return self._collect(JOIN)

    def _operation(self) -> list[Outcome]:
        self.job.join()
        raise_unless(self._reduce_on(range(WORLD), count=COUNT))
        first = _before(self.phase)
        self.cluster.relay.add(first)
        trigger = self.cluster.relay.when(_PHASES[self.phase], self._begin)
        try:
            late = self.phase is Phase.BEFORE_READY
            others = [rank for rank in range(WORLD) if rank != VICTIM or not late]
            self._ask(others, count=COUNT)
            trigger.wait(patience(SET_OFF))
            self.cluster.relay.remove(first)
            if late and self.fault is Fault.RESTART:
                self.injection.end()  # the daemon ends without open operations
            if late:
                self._ask([VICTIM], count=COUNT)
            return self._collect(self._deadline)
        finally:
            self.cluster.relay.forget(trigger)
            self.cluster.relay.remove(first)

    def _collect(self, deadline: float) -> list[Outcome]:
        """Outcomes of all ranks. The fault ends after the survivors' outcomes, or by itself."""
        if self.fault in PASSING:
            time.sleep(PASSING[self.fault])
            self.injection.end()
        answers = {
            rank: self.job.trainers[rank].answer(deadline + ANSWER)
            for rank in range(WORLD)
            if rank != VICTIM
        }
        self.injection.end()
        answers[VICTIM] = self.job.trainers[VICTIM].answer(deadline + ANSWER)
        return [answers[rank] for rank in range(WORLD)]

    def _begin(self) -> None:
        self._begun = time.monotonic()
        self.injection.begin()

    def _ask(self, ranks: "list[int] | range", count: int) -> None:
        more: dict[str, Any] = {} if self._bounded else {"number": OPERATION}
        for rank in ranks:
            name = "reduce_bounded" if self._bounded else "reduce"
            self.job.trainers[rank].ask(name, count=count, deadline=self._deadline, **more)

    def _reduce_on(self, ranks: range, count: int) -> list[Outcome]:
        self._ask(ranks, count)
        return self.job.answers(self._deadline + ANSWER)

    def _note(self, outcomes: list[Outcome], seen: Seen) -> None:
        others = [one for rank, one in enumerate(outcomes) if rank != VICTIM]
        seen.survivors = [one["code"] for one in others]
        seen.victim = outcomes[VICTIM]["code"]
        seen.texts = [one["text"] for one in outcomes]
        if seen.survivors != [RESULT] * len(others):
            seen.seconds = max(one["at"] for one in others) - self._begun

    def _next(self, outcomes: list[Outcome], seen: Seen) -> None:
        """Run one more operation, in the same session if all ranks succeeded, else in a new one."""
        seen.then = "same session"
        if any(one["code"] != RESULT for one in outcomes) or self.fault is Fault.RESTART:
            seen.then = "new job"
            self.job.close()
            self.cluster.repair()
            self.job.join()
        raise_unless(self._reduce_on(range(WORLD), count=COUNT))
        self.job.close()

    def _processes(self) -> list[tuple[str, int]]:
        return [*self.cluster.processes(), *self.job.processes()]

    def _left(self, before: leaks.Held, folders: set[str]) -> list[str]:
        now = self._processes()
        known = {pid for _, pid in now} | {os.getpid()}
        marks = (str(self.cluster.folder), f'"{self.cluster.network.address(0)[:-1]}')
        return [
            *leaks.grown(before, leaks.held(now), SLACK),
            *leaks.strays(marks, known),
            *(f"folder {name}" for name in leaks.folders() - folders),
        ]


def _before(phase: Phase) -> Rule:
    """Rule of the network until the fault begins, so that the state is the same in each run."""
    if phase is Phase.AGREEING:  # rank 0 misses a segment and proposes to waive it
        return Drop([Way(VICTIM, 0)], partial(_is, CONTRIBUTION, LOST_SEGMENT), most=1)
    if phase is Phase.GATHERING:  # the victim does not have its own result yet
        return Drop([Way(ANY, VICTIM)], partial(_is, RESULTS, None))
    return Rule([])


def _is(transfer: int, segment: int | None, header: Header) -> bool:
    """Whether it is DATA of the operation and of this transfer and segment; None: any segment."""
    return (header.kind, *header.key[1:]) == (Kind.DATA, OPERATION, transfer) and (
        segment in (None, header.segment)
    )


def _says(
    kind: Kind, source: int | None, target: int | None, transfer: int | None
) -> Callable[[Passage], bool]:
    """A predicate: a datagram, or a part of one, of the operation, of this kind, way and transfer;
    None: any."""

    def look(passage: Passage) -> bool:
        if source not in (None, passage.source) or target not in (None, passage.target):
            return False
        return any(
            (header.kind, header.operation, header.stream) == (kind, OPERATION, 0)
            and transfer in (None, header.transfer)
            for header in passage.headers
        )

    return look


_PHASES: Final = {
    Phase.BEFORE_READY: _says(Kind.READY, None, VICTIM, None),
    Phase.REDUCING: _says(Kind.DATA, VICTIM, None, CONTRIBUTION),
    Phase.GATHERING: _says(Kind.DATA, VICTIM, None, RESULTS),
    Phase.AGREEING: _says(Kind.FINAL, None, VICTIM, CONTRIBUTION),
}
