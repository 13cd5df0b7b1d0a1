"""A shard under load on a virtual clock, with a server that is killed again and again.

The journal is the real one, on a real folder; what was not synced when the server dies is cut off
at random, as a kernel may. Workers are what their protocol makes them: one push outstanding, pushed
again to the next server unless that knows it as acknowledged.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dlcp_client.ps.join_request import JoinRequest, PushAgreement, policy_values
from dlcp_client.ps.layout import ShardLayout, ShardTensor
from dlcp_client.ps.specs import sgd
from dlcp_client.server.core import Contribution, ShardCore
from dlcp_client.server.journal import Journal
from dlcp_client.server.journal_entry import JournalEntry
from dlcpd.contract.policy import EXACT

WORKERS, PUSHES = 4, 12  # pushes of each rank have a parameter of their own, which they change
RATE = sgd(1.0)
GRACE = 5.0  # seconds of the virtual clock


class Killed(Exception):
    """The server process is gone."""


@dataclass
class Disk:
    """What a crash leaves of files: what was synced, and a random part of what was not."""

    folder: Path
    rng: random.Random
    deadly: float  # chance that a sync is the last thing the process does
    # Bytes that are safe, by inode: files are renamed.
    _durable: dict[int, int] = field(default_factory=dict)

    def sync(self, descriptor: int) -> None:
        if self.rng.random() < self.deadly / 2:
            raise Killed
        there = {path.stat().st_ino for path in self.folder.iterdir()}
        self._durable = {inode: size for inode, size in self._durable.items() if inode in there}
        found = os.fstat(descriptor)
        self._durable[found.st_ino] = found.st_size
        if self.rng.random() < self.deadly / 2:
            raise Killed

    def crash(self) -> None:
        for path in self.folder.iterdir():
            found = path.stat()
            size, durable = found.st_size, self._durable.get(found.st_ino, 0)
            if path.name != "lock" and size > durable:
                with path.open("r+b") as file:
                    file.truncate(self.rng.randint(durable, size))


@dataclass
class Worker:
    """`number`: of its outstanding push."""

    rank: int
    number: int = 1
    attached: bool = False
    pushed: bool = False  # in this connection
    saw: int = 0  # newest version that it was told of
    acknowledged: list[int] = field(default_factory=list)
    dead: bool = False


@dataclass
class Simulation:
    folder: Path
    seed: int
    staleness: int = -1
    kills: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = Disk(self.folder, self.rng, deadly=0.05)
        self.now, self.workers = 0.0, [Worker(rank) for rank in range(WORKERS)]
        self.versions: dict[int, Sequence[tuple[int, int]]] = {}
        self.agreement = PushAgreement(
            "job", "model", "sgd", WORKERS * PUSHES, 1, 1, staleness=self.staleness
        )
        self.server: ShardCore | None = None
        self.journal: Journal | None = None

    def run(self) -> None:
        for _ in range(20_000):
            if all(w.dead or w.number > PUSHES for w in self.workers):
                return
            self.now += self.rng.expovariate(10.0)
            try:
                self._event()
            except Killed:
                self._killed()
        raise AssertionError(f"seed {self.seed}: no progress")

    def _event(self) -> None:
        if self.server is None:
            self._take_over()
            return
        chance = self.rng.random()
        if chance < 0.02:
            raise Killed
        self.server.advance(self.now)
        worker = self.rng.choice(self.workers)
        if worker.dead or worker.number > PUSHES:
            return
        started = self.server.progress.started
        if chance < 0.025 and started and sum(w.dead for w in self.workers) < WORKERS - 2:
            worker.dead = True
            self.server.lost(worker.rank, self.now + GRACE)
        elif chance < 0.06 and worker.attached:  # its connection breaks, and it lives
            self.server.lost(worker.rank, self.now + GRACE)
            worker.attached = False
        else:
            self._act(self.server, worker)

    def _act(self, server: ShardCore, worker: Worker) -> None:
        if not worker.attached:
            policy = policy_values(EXACT)
            last = server.attach(JoinRequest(self.agreement, worker.rank, WORKERS, policy, policy))
            worker.attached, worker.pushed = True, False
            server.initialise(
                ShardLayout((ShardTensor(WORKERS * PUSHES, 0),)).rows(),
                np.zeros(WORKERS * PUSHES, np.float32),
            )
            assert last <= worker.number, "acknowledged, and never pushed"
            if last == worker.number:
                self._told(server, worker)
        elif not worker.pushed:
            gradient = np.zeros(WORKERS * PUSHES, np.float32)
            gradient[worker.rank * PUSHES + worker.number - 1] = 1.0
            worker.pushed = True
            server.push(worker.rank, worker.number, Contribution(RATE.groups, gradient))
            server.advance(self.now)
        else:
            made = server.progress.acknowledged.get(worker.rank, 0) >= worker.number
            if made and server.progress.may_go_on(worker.rank):
                self._told(server, worker)

    def _told(self, server: ShardCore, worker: Worker) -> None:
        """The acknowledgement reaches the worker."""
        worker.acknowledged.append(worker.number)
        assert server.progress.version >= worker.saw, "a version that was seen is gone"
        worker.saw = server.progress.version
        worker.number += 1
        worker.pushed = False
        if worker.number > PUSHES:
            server.leave(worker.rank)

    def _take_over(self) -> None:
        self.journal = Journal(self.folder, self.disk.sync)
        server = ShardCore(self._durable(self.journal), every=7)
        server.recover(self.journal.recover(), self.now + GRACE)
        self.server = server

    def _durable(self, journal: Journal) -> Journal:
        """The journal, which also tells this simulation what became durable."""
        append = journal.append

        def told(entry: JournalEntry) -> None:
            append(entry)
            assert entry.version not in self.versions or entry.head["pushes"]
            self.versions[entry.version] = entry.head["pushes"]

        journal.append = told  # type: ignore[method-assign]
        return journal

    def _killed(self) -> None:
        self.kills += 1
        if self.journal is not None:
            self.journal.close()
        self.disk.crash()
        self.server, self.journal = None, None
        for worker in self.workers:
            worker.attached = worker.pushed = False

    def parameters(self) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """By rank and push: what is on disk at the end."""
        if self.journal is not None:
            self.journal.close()
        self.disk.deadly = 0
        journal = Journal(self.folder)
        core = ShardCore(journal)
        core.recover(journal.recover(), self.now)
        journal.close()
        self.last_version = core.progress.version
        return core.read().reshape(WORKERS, PUSHES)
