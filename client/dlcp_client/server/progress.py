"""The workers of a shard, and the pushes of its next version: without clock and data.

Every worker numbers its pushes 1, 2, ...: one is outstanding at a time, and is acknowledged once
the version with it is durable. An acknowledged push is recognised by its number and does not count
twice; an unacknowledged one is in no version, and its worker pushes it again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import BadConfig, BadOperation, RanksDisagree, StaleWorker

MAX_WORKERS: Final = 256  # ranks of workers, as of a job (MAX_WORLD)

Push = tuple[int, int]  # rank of a worker, number of its push


@dataclass(slots=True)
class ShardProgress:
    """`staleness`: None: every version has pushes of all workers; else each push makes a version,
    and the fastest worker is at most that many pushes ahead of the slowest. `refuse`: workers do
    not wait for the slowest; a push is refused if its worker pulled more than `staleness` versions
    ago (StaleWorker)."""

    staleness: int | None = None
    refuse: bool = False
    version: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)  # by rank: last acknowledged push
    started: bool = False  # whether all workers of the launch have joined
    _came: set[int] = field(default_factory=set)  # workers that joined before that
    _here: set[int] = field(default_factory=set)
    _expected: dict[int, float] = field(default_factory=dict)  # lost ranks: end of their grace
    _pending: dict[int, int] = field(default_factory=dict)  # in order of arrival
    _clock: dict[int, int] = field(default_factory=dict)  # pushes, as the staleness counts them
    _pulled: dict[int, int] = field(default_factory=dict)  # by rank: version that it pulled

    @property
    def here(self) -> Collection[int]:
        """Connected workers."""
        return self._here

    @property
    def pending(self) -> Mapping[int, int]:
        """Pushes, by rank, that are in no version yet."""
        return self._pending

    @property
    def expected(self) -> Collection[int]:
        """Workers whose connection was lost, and that may return."""
        return self._expected.keys()

    def attach(self, rank: int, launch: int) -> int:
        """A worker has joined or returned. Its unacknowledged push is dropped.

        `launch`: number of workers that start together; no version is made before that many have
        joined. Returns the number of its last acknowledged push. Raises: BadConfig.
        """
        if not 0 <= rank < MAX_WORKERS:
            raise BadConfig(f"worker {rank} is out of range: ranks are 0..{MAX_WORKERS - 1}")
        if rank in self._here:
            raise BadConfig(
                f"worker {rank} is already connected: two jobs may use the same server name. "
                "If the worker was restarted, the server detects the loss of its predecessor "
                "after about a second"
            )
        self._pending.pop(rank, None)
        others = [self._clock[other] for other in self._present() if other != rank]
        if self._expected.pop(rank, None) is None:  # a returning worker keeps its clock
            self._clock[rank] = min(others, default=0)
        self._here.add(rank)
        self._pulled.setdefault(rank, self.version)
        self._came.add(rank)
        self.started = self.started or len(self._came) >= launch
        return self.acknowledged.get(rank, 0)

    def leave(self, rank: int) -> None:
        """A worker has left: no version waits for it any more."""
        self._here.discard(rank)
        self._expected.pop(rank, None)
        self._clock.pop(rank, None)
        self._pulled.pop(rank, None)
        self._pending.pop(rank, None)

    def lost(self, rank: int, until: float) -> None:
        """A connection broke. Until `until`, versions still wait for the worker; a push that has
        arrived completely counts."""
        if rank in self._here:
            self._here.discard(rank)
            self._expected[rank] = until

    def expect(self, ranks: Collection[int], until: float) -> None:
        """After a recovery: expect these workers to return."""
        self._expected = dict.fromkeys(ranks, until)
        self._clock = dict.fromkeys(ranks, 0)

    def expire(self, now: float) -> Sequence[int]:
        """Stop waiting for lost workers whose time is over. Returns their ranks."""
        gone = [rank for rank, until in self._expected.items() if until <= now]
        for rank in gone:
            del self._expected[rank]
            self._clock.pop(rank, None)
            self._pulled.pop(rank, None)
        return gone

    def push(self, rank: int, number: int) -> bool:
        """A worker's push has arrived. False: it was acknowledged before, and must be dropped.

        Raises: BadOperation for a number that is not the next; StaleWorker, see `refuse`.
        """
        last = self.acknowledged.get(rank, 0)
        if number <= last:
            return False
        if number != last + 1 or rank not in self._here:
            raise BadOperation(f"worker {rank} sent push number {number} after number {last}")
        behind = self.version - self._pulled[rank]
        if self.refuse and self.staleness is not None and behind > self.staleness:
            raise StaleWorker(
                f"the push of worker {rank} is {behind} versions old, and "
                f"staleness={self.staleness} is allowed: pull, and compute the gradients again"
            )
        self._pending[rank] = number
        return True

    def due(self) -> Sequence[Push]:
        """The pushes of the next version, by rank; empty: it is not due."""
        if not self._pending:
            return ()
        if self.staleness is not None:
            return (next(iter(self._pending.items())),)
        if not self.started or not self._present() <= self._pending.keys():
            return ()
        return tuple(sorted(self._pending.items()))

    def committed(self, pushes: Sequence[Push]) -> None:
        """The next version, made of `pushes`, is durable."""
        self.version += 1
        for rank, number in pushes:
            self.acknowledged[rank] = number
            self._pending.pop(rank, None)
            if rank in self._clock:
                self._clock[rank] += 1

    def may_go_on(self, rank: int) -> bool:
        """Whether a worker is within the staleness of the slowest, so that it may pull."""
        if self.staleness is None or self.refuse or rank not in self._clock:
            return True
        return self._clock[rank] - min(self._clock.values()) <= self.staleness

    def pulled(self, rank: int) -> None:
        """A worker has pulled the present version."""
        if rank in self._here:
            self._pulled[rank] = self.version

    def _present(self) -> set[int]:
        return self._here | self._expected.keys()


def same_settings(rank: int, own: object, others: Mapping[int, object]) -> None:
    """Raises: RanksDisagree if workers of one version have different settings."""
    for other, settings in others.items():
        if own != settings:
            raise RanksDisagree(
                f"worker {rank} pushes with the settings {own}, and worker {other} with "
                f"{settings}: give all workers the same optimizer, and step the schedulers in "
                "the same steps"
            )
