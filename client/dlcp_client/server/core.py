"""A shard without threads, clock and network: parameters, optimizer, progress and journal.

The order matters: a version is made durable, then applied, then acknowledged.
docs/parameter-server.md proves from that order that nothing acknowledged is lost, and that nothing
counts twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcp_client.ps.join_request import JoinRequest, PushAgreement
from dlcp_client.ps.layout import COLUMNS, ShardLayout
from dlcp_client.ps.specs import Settings, check_settings
from dlcp_client.server.journal_entry import JournalEntry
from dlcp_client.server.optimizers import Optimizer
from dlcp_client.server.progress import Push, ShardProgress, same_settings
from dlcpd.contract.errors import BadConfig, BadMessage, BadSnapshot, DlcpError, NotInitialised

Array = NDArray[np.float32]

DEFAULT_EVERY: Final = 100  # versions between two snapshots: the most that a recovery applies again


class Durable(Protocol):
    """Durable storage of versions, such as a Journal."""

    def append(self, entry: JournalEntry) -> None:
        """Make a version durable."""

    def snapshot(self, entry: JournalEntry) -> None:
        """Make the whole state durable; earlier logs are no longer needed."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The push of a worker. `gradient`: not modified until the version is made; None: it was not
    finite, and was not sent."""

    settings: tuple[Settings, ...]
    gradient: Array | None


class ShardCore:
    """One shard. `agreement`, `layout` and `parameters` are None until a worker has sent them."""

    def __init__(self, durable: Durable, *, every: int = DEFAULT_EVERY) -> None:
        self._durable, self._every = durable, every
        self.agreement: PushAgreement | None = None
        self.progress = ShardProgress()
        self.layout: ShardLayout | None = None
        self.parameters: Array | None = None
        self._unchanged = set[int]()  # workers whose last acknowledged push changed nothing
        self._optimizer: Optimizer | None = None
        self._contributions: dict[int, Contribution] = {}
        self._snapshot_at = 0
        self._last: Sequence[Push] = ()  # pushes of the present version

    # --- workers ----------------------------------------------------------------------------

    def attach(self, join_request: JoinRequest) -> int:
        """Admit a worker. Returns the number of its last acknowledged push.

        Raises: BadConfig, RanksDisagree, BadSnapshot, naming the difference.
        """
        busy = len(self.progress.here) + len(self.progress.expected)
        if self.agreement is None or (self.parameters is None and not busy):
            self._begin(join_request.agreement)
        agreement = self._known_agreement()
        agreement.check(
            join_request.agreement, version=self.progress.version, worker=join_request.worker
        )
        if join_request.agreement.job != agreement.job:
            self._change_job(join_request, agreement, busy)
        last = self.progress.attach(join_request.worker, join_request.launch)
        self._contributions.pop(join_request.worker, None)
        return last

    def _change_job(self, join_request: JoinRequest, agreement: PushAgreement, busy: int) -> None:
        """Continue with another job's parameters. Raises: BadConfig."""
        if busy or not join_request.resume:
            raise BadConfig(
                f"this server serves job {agreement.job!r} ({busy} workers, version "
                f"{self.progress.version}), and worker {join_request.worker} belongs to job "
                f"{join_request.agreement.job!r}: give each job its own server name and snapshots "
                f"folder; to continue from the version of a job that has ended, call register(..., "
                f"resume=True)"
            )
        version = self.progress.version
        self._begin(join_request.agreement)
        self.progress.version, self._last = version, ()
        self._snapshot()  # push numbers restart, also for a process that takes over

    def leave(self, rank: int) -> None:
        """A worker has left."""
        self.progress.leave(rank)
        self._contributions.pop(rank, None)

    def lost(self, rank: int, until: float) -> None:
        """A worker's connection broke; versions wait for it until `until`."""
        self.progress.lost(rank, until)

    # --- parameters -------------------------------------------------------------------------

    def initialise(self, rows: NDArray[np.int64], parameters: Array) -> None:
        """Take the layout and the parameters from the first worker that sends them; later ones are
        ignored. Durable on return.

        Raises: BadMessage; NotDurable.
        """
        if self.parameters is not None:
            return
        agreement = self._known_agreement()
        self.layout = ShardLayout.of(rows, size=agreement.elements, groups=agreement.groups)
        self._optimizer = Optimizer(agreement.optimizer, self.layout)
        self.parameters = parameters.astype(np.float32, copy=True)
        self._snapshot()

    def changed(self, rank: int) -> bool:
        """Whether a worker's last acknowledged push changed the parameters. False if a gradient of
        its version was not finite."""
        return rank not in self._unchanged

    def waiting(self) -> str:
        """Description of the workers that the next version waits for."""
        progress = self.progress
        pending = sorted({*progress.here, *progress.expected} - progress.pending.keys())
        if self.parameters is None:
            return "no worker has sent parameters"
        if not progress.started:
            return (
                f"workers {sorted(progress.here)} have joined, and other workers of the launch "
                "have not"
            )
        return f"version {progress.version + 1} waits for worker(s) {pending}"

    def read(self) -> Array:
        """The parameters of the present version. Raises: NotInitialised."""
        if self.parameters is None:
            raise NotInitialised(
                "this server has no parameters yet: pull after a worker has registered a "
                "model or called initialise()"
            )
        return self.parameters

    # --- versions ---------------------------------------------------------------------------

    def push(self, rank: int, number: int, contribution: Contribution) -> None:
        """A worker's push has arrived completely. `advance` makes the version.

        Raises: BadOperation, StaleWorker, RanksDisagree, BadConfig: it does not count.
        """
        self.read()
        agreement = self._known_agreement()
        for settings in contribution.settings:
            check_settings(agreement.optimizer, settings)
        if agreement.staleness < 0:
            others = {r: c.settings for r, c in self._contributions.items() if r != rank}
            same_settings(rank, contribution.settings, others)
        if self.progress.push(rank, number):
            self._contributions[rank] = contribution

    def advance(self, now: float) -> Sequence[int]:
        """Make the due versions durable, and apply them. Returns the lost workers whose time is
        over.

        Raises: NotDurable: earlier versions are made; this one and later ones cannot be.
        """
        gone = self.progress.expire(now)
        while pushes := self.progress.due():
            self._make(pushes)
        return gone

    def _make(self, pushes: Sequence[Push]) -> None:
        taken = [self._contributions[rank] for rank, _ in pushes]
        mean, settings = average([one.gradient for one in taken]), taken[0].settings
        head = {"version": self.progress.version + 1, "pushes": pushes, "settings": settings}
        gradient = mean if mean is not None else np.empty(0, np.float32)
        self._durable.append(JournalEntry(head, gradient))
        self._apply(pushes, settings, gradient)
        for rank, _ in pushes:
            del self._contributions[rank]
        if self.progress.version - self._snapshot_at >= self._every:
            self._snapshot()

    def _apply(
        self, pushes: Sequence[Push], settings: tuple[Settings, ...], gradient: Array
    ) -> None:
        assert self._optimizer is not None and self.parameters is not None  # noqa: PT018, S101
        if len(gradient):
            self._optimizer.step(self.parameters, gradient, settings)
        ranks = {rank for rank, _ in pushes}
        self._unchanged = self._unchanged - ranks if len(gradient) else self._unchanged | ranks
        self.progress.committed(pushes)
        self._last = pushes

    # --- durable state ----------------------------------------------------------------------

    def recover(self, entries: Iterable[JournalEntry], until: float) -> None:
        """Restore this shard from its journal. The workers of its last version have until `until`
        to return, and the next version waits for them.

        Raises: BadSnapshot.
        """
        for entry in entries:
            try:
                if self.agreement is None:
                    self._restore(entry)
                else:
                    self._replay(entry)
            except (KeyError, TypeError, ValueError, IndexError, DlcpError) as exc:
                if isinstance(exc, BadSnapshot):
                    raise
                raise BadSnapshot(
                    f"the snapshot of version {entry.version} has an unknown format: {exc}"
                ) from exc
        if self.agreement is not None:
            here = {rank for rank, _ in self._last}
            self.progress.expect(here, until)
            self._snapshot()

    def _begin(self, agreement: PushAgreement) -> None:
        self.agreement = agreement
        asynchronous = agreement.staleness >= 0
        self.progress = ShardProgress(
            agreement.staleness if asynchronous else None, refuse=agreement.refuse
        )

    def _restore(self, entry: JournalEntry) -> None:
        head, arrays = entry.head, entry.arrays
        agreement = PushAgreement.of(head["terms"])
        self._begin(agreement)
        rows = np.array(head["layout"], np.int64).reshape(agreement.tensors, COLUMNS)
        self.layout = ShardLayout.of(rows, size=agreement.elements, groups=agreement.groups)
        self._optimizer = optimizer = Optimizer(agreement.optimizer, self.layout)
        parts = arrays.reshape(1 + len(optimizer.slots), agreement.elements)
        self.parameters = parts[0].copy()
        for slot, part in zip(optimizer.slots, parts[1:], strict=True):
            slot[:] = part
        optimizer.steps = int(head["steps"])
        self.progress.version = entry.version
        self.progress.started = head["started"] is True
        self.progress.acknowledged = {
            int(rank): int(number) for rank, number in head["acknowledged"]
        }
        self._last = [(int(rank), int(number)) for rank, number in head["last"]]

    def _replay(self, entry: JournalEntry) -> None:
        pushes = [(int(rank), int(number)) for rank, number in entry.head["pushes"]]
        settings = tuple(tuple(map(float, group)) for group in entry.head["settings"])
        if len(entry.arrays) not in (0, self.read().size):
            raise BadSnapshot(
                f"the journal entry of version {entry.version} has {len(entry.arrays)} "
                "elements, which does not fit the model"
            )
        self._apply(pushes, settings, entry.arrays.copy())
        self.progress.started = True

    def _snapshot(self) -> None:
        """Make the whole state durable. Raises: NotDurable."""
        assert self.agreement and self.layout and self._optimizer  # noqa: PT018, S101  # for mypy
        progress = self.progress
        head = {
            "version": progress.version,
            "terms": self.agreement.values(),
            "layout": self.layout.rows().ravel().tolist(),
            "steps": self._optimizer.steps,
            "started": progress.started,
            "acknowledged": list(progress.acknowledged.items()),
            "last": list(self._last),
        }
        arrays = np.concatenate([self.read(), *self._optimizer.slots])
        self._durable.snapshot(JournalEntry(head, arrays))
        self._snapshot_at = progress.version

    def _known_agreement(self) -> PushAgreement:
        if self.agreement is None:
            raise BadMessage("no worker has sent the layout of this shard")
        return self.agreement


def average(gradients: Sequence[Array | None]) -> Array | None:
    """The mean of gradients, added in this order; None if one is missing or not finite."""
    given = [one for one in gradients if one is not None]
    if len(given) < len(gradients):
        return None
    with np.errstate(all="ignore"):
        total = given[0].copy()  # a version has at least one push
        for gradient in given[1:]:
            total += gradient
        total /= np.float32(len(given))
    return total if np.isfinite(total).all() else _average_of_large(given, total)


def _average_of_large(gradients: Sequence[Array], total: Array) -> Array | None:
    """Fill values of `total` that are not finite with the mean of scaled gradients: the mean of
    finite values is finite, even if their sum overflows."""
    if not all(np.isfinite(one).all() for one in gradients):
        return None
    lacking, largest = ~np.isfinite(total), np.finfo(np.float32).max
    down = 0.5 ** len(gradients).bit_length()
    again = np.zeros(np.count_nonzero(lacking), np.float32)
    for one in gradients:
        again += one[lacking] * np.float32(down)
    with np.errstate(over="ignore"):
        again /= np.float32(len(gradients) * down)
    total[lacking] = again.clip(-largest, largest)
    return total
