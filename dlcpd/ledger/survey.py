"""Sums of losses in ledgers by rank, way, path, name and step, and the worst transfers.

Ledgers are read record by record: memory does not grow with the number of records. A row of a
loss is in the ledgers of both of its ends. The sender's row counts; the receiver's does if the
sender's ledger is absent.
"""

import heapq
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlcpd.contract.errors import BadLedger
from dlcpd.contract.job_name import means
from dlcpd.ledger.frames import record_at_untrusted
from dlcpd.ledger.generations import SUFFIX
from dlcpd.ledger.masks import count_untrusted, unpack_paths_untrusted
from dlcpd.ledger.records import VERSION, Ended, MissingRow, Opening, Plan, Record, ranks_of
from dlcpd.ledger.replay import program_of
from dlcpd.schedules.model import Send

MAX_KEYS: Final = 4096  # of one table, ~1 MB; later keys are counted together
MAX_PROBLEMS: Final = 1000  # that are kept
OTHERS: Final = "(others)"
STEPS: Final = 16  # rows of the table by step
UNKNOWN: Final = -1  # path


@dataclass(slots=True)
class LossSum:
    """Sum of operations or of losses."""

    operations: int = 0
    failed: int = 0  # of these
    segments: int = 0  # waived
    bytes: int = 0  # likewise; the last segment of a transfer counts in full
    lossy: int = 0  # bytes of lossy transfers
    allowed: float = 0.0  # bytes of those that the bound allows to waive
    worst: float = 0.0  # largest share of a transfer that was waived

    @property
    def of_bound(self) -> float | None:
        """Waived fraction of the bytes that the bound allows to waive; None if it allows none."""
        return self.bytes / self.allowed if self.allowed else None

    def add(self, other: "LossSum") -> None:
        """Add another sum to this one."""
        self.operations += other.operations
        self.failed += other.failed
        self.segments += other.segments
        self.bytes += other.bytes
        self.lossy += other.lossy
        self.allowed += other.allowed
        self.worst = max(self.worst, other.worst)

    def lose(self, segments: int, size: int, share: float) -> None:
        """Add the loss of a transfer: `segments` of `size` bytes, the fraction `share` of it."""
        self.segments += segments
        self.bytes += segments * size
        self.worst = max(self.worst, share)


class TransferLoss(NamedTuple):
    """A transfer of an operation with missing segments; ordered by the fraction of these."""

    share: float
    segments: int
    out_of: int
    bound: float
    job: str
    step: int
    operation: int
    name: str
    sender: int
    receiver: int
    transfer: int


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Selection of the records that count."""

    job: str = ""  # a launch, or all with this name; "" = any
    first: int = 0  # step
    last: int = 1 << 62
    worst: int = 10  # transfers that are listed

    def takes(self, job: str) -> bool:
        """Whether records of a job count."""
        return not self.job or means(self.job, job)


@dataclass(slots=True)
class Member:
    """The ledger of one rank's session on one engine."""

    folder: str
    opening: Opening
    sum: LossSum = field(default_factory=LossSum)
    lost: int = 0  # segments of other ranks missing at this rank
    first: int | None = None  # step
    last: int = 0


class BySteps:
    """At most STEPS rows of equal width, which doubles when there are steps beyond them."""

    def __init__(self) -> None:
        self.width = 1
        self._sums: dict[int, LossSum] = {}

    def of(self, step: int) -> LossSum:
        """The row that a step belongs to."""
        while step // self.width >= STEPS:
            self._double()
        return self._sums.setdefault(step // self.width, LossSum())

    def rows(self) -> Iterator[tuple[int, int, LossSum]]:
        """First and last step, and the sum."""
        for row, found in sorted(self._sums.items()):
            yield row * self.width, (row + 1) * self.width - 1, found

    def _double(self) -> None:
        self.width *= 2
        before, self._sums = self._sums, {}
        for row, found in before.items():
            self._sums.setdefault(row // 2, LossSum()).add(found)


@dataclass(slots=True)
class Survey:
    """Results of a survey. Keys of tables begin with the job."""

    choice: RecordFilter = RecordFilter()
    members: list[Member] = field(default_factory=list)
    ways: dict[tuple[Any, ...], LossSum] = field(default_factory=dict)  # sender, receiver
    paths: dict[tuple[Any, ...], int] = field(default_factory=dict)  # sender, path
    names: dict[tuple[Any, ...], LossSum] = field(default_factory=dict)  # name, bound
    steps: dict[str, BySteps] = field(default_factory=dict)  # by job
    worst: list[TransferLoss] = field(default_factory=list)  # a heap
    problems: list[str] = field(default_factory=list)  # files that are damaged
    cut: list[str] = field(default_factory=list)  # files whose last record is not whole
    jobs: set[str] = field(default_factory=set)  # all jobs, chosen or not
    absent: set[tuple[str, int, str]] = field(default_factory=set)  # job, rank, host: no ledger
    _shapes: dict[tuple[Any, ...], int] = field(default_factory=dict)  # see `_lossy`

    def sum(self) -> LossSum:
        """Sum of all members."""
        whole = LossSum()
        for member in self.members:
            whole.add(member.sum)
        return whole

    def read(self, folders: Iterable[Path]) -> None:
        """Read all ledgers in these folders and below. Raises: BadLedger if there is none."""
        found = dict[Path, list[Path]]()
        for place in folders:
            files = sorted(place.rglob(f"*{SUFFIX}"))
            if not files:
                why = "holds no ledger (files *.ledger)" if place.is_dir() else "is no folder"
                raise BadLedger(f"{place}: {why}")
            for file in files:
                found.setdefault(file.parent.resolve(), []).append(file)
        openings = {folder: self._opening(sorted(set(files))) for folder, files in found.items()}
        here = {
            (opening.engine, opening.rank, *row._replace(host=""))
            for opening in openings.values()
            if opening
            for row in opening.ranks
        }
        for folder, files in found.items():
            if opening := openings[folder]:
                self._folder(folder, sorted(set(files)), opening, here)

    def _opening(self, files: list[Path]) -> Opening | None:
        """Opening of the first file that has one; None if none has, or its job is not chosen."""
        for file in files:
            for record in self._records(file, last=True, quiet=True):
                if isinstance(record, Opening) and record.version == VERSION:
                    self.jobs.add(record.job)
                    return record if self.choice.takes(record.job) else None
                break
        self._problem(f"{files[0].parent}: no file there begins as a ledger of version {VERSION}")
        return None

    def _folder(
        self, folder: Path, files: list[Path], opening: Opening, here: set[tuple[Any, ...]]
    ) -> None:
        member = Member(str(folder), opening)
        self.members.append(member)
        absent = {  # two ledgers are of one session where both have the same marks: see Rank
            row.rank: row.host
            for row in opening.ranks
            if (opening.engine, row.rank, opening.rank, "", row.theirs, row.ours) not in here
        }
        self.absent |= {(opening.job, rank, host) for rank, host in absent.items()}
        for place, file in enumerate(files):
            plans = dict[int, Plan]()
            for record in self._records(file, last=place + 1 == len(files)):
                if isinstance(record, Plan):
                    plans[record.plan] = record
                elif isinstance(record, Ended):
                    try:
                        self._ended(member, plans.get(record.plan), record, set(absent))
                    except BadLedger as exc:
                        self._problem(f"{file}: operation {record.number}: {exc}")

    def _records(self, file: Path, *, last: bool, quiet: bool = False) -> Iterator[Record]:
        """Records of one file, until its end or the first damage, which is noted."""
        try:
            with file.open("rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                if not size:
                    return
                with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
                    at = 0
                    while at < size:
                        record, end = record_at_untrusted(data, at, may_be_torn=last)
                        if record is None:
                            if not quiet:
                                self.cut.append(f"{file}: ends within a record, at byte {at}")
                            return
                        yield record
                        at = end
        except OSError as exc:
            if not quiet:
                self._problem(f"{file}: cannot be read: {exc.strerror}")
        except BadLedger as exc:
            if not quiet:
                self._problem(f"{file}: damaged at byte {at}: {exc}; what follows is not read")

    def _problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)

    def _ended(self, member: Member, plan: Plan | None, ended: Ended, absent: set[int]) -> None:
        """Count an operation. Raises: BadLedger."""
        if plan is None:
            raise BadLedger("has no plan")
        step = ended.turn
        if not self.choice.first <= step <= self.choice.last:
            return
        job, rank = member.opening.job, member.opening.rank
        sums = [
            member.sum,
            self.steps.setdefault(job, BySteps()).of(step),
            _of(self.names, (job, plan.name, plan.bound), (job, OTHERS, None)),
        ]
        lossy = self._lossy(plan, rank) if plan.lossy and ended.done else 0
        for one in sums:
            one.operations += 1
            one.failed += not ended.done
            one.lossy += lossy
            one.allowed += plan.bound * lossy
        member.first = step if member.first is None else min(member.first, step)
        member.last = max(member.last, step)

        def loss(row: MissingRow, sender: int, receiver: int) -> TransferLoss:
            count = count_untrusted(row.mask, row.out_of)
            return TransferLoss(
                count / row.out_of,
                count,
                row.out_of,
                plan.bound,
                job,
                step,
                ended.number,
                plan.name,
                sender,
                receiver,
                row.transfer,
            )

        for row in ended.waived:
            found = loss(row, rank, row.peer)
            for one in sums:
                one.lose(found.segments, row.segment_size, found.share)
            self._lost(found, row)
        for row in ended.lost:
            found = loss(row, row.peer, rank)
            member.lost += found.segments
            if row.peer in absent:
                self._lost(found, row)

    def _lost(self, loss: TransferLoss, row: MissingRow) -> None:
        """Count a loss, once for its two ends. Raises: BadLedger."""
        way = _of(self.ways, (loss.job, loss.sender, loss.receiver), (loss.job, None, None))
        way.lose(loss.segments, row.segment_size, loss.share)
        by_path = unpack_paths_untrusted(row.paths)
        unknown = loss.segments - sum(by_path.values())
        for path, segments in [*by_path.items(), (UNKNOWN, unknown)]:
            key = loss.job, loss.sender, path
            if segments > 0 and (key in self.paths or len(self.paths) < MAX_KEYS):
                self.paths[key] = self.paths.get(key, 0) + segments
        if len(self.worst) < self.choice.worst:
            heapq.heappush(self.worst, loss)
        elif self.worst and loss > self.worst[0]:
            heapq.heapreplace(self.worst, loss)

    def _lossy(self, plan: Plan, rank: int) -> int:
        """Bytes of a rank's lossy sends; 0 if this version builds that schedule differently, or
        not at all."""
        shape = (
            rank,
            plan.collective,
            plan.size,
            *plan.sizes,
            plan.schedule,
            plan.fingerprint,
            *plan.members,
            plan.chunk_bytes,
            plan.part,
            plan.parts,
        )
        if shape not in self._shapes:
            if len(self._shapes) >= MAX_KEYS:
                self._shapes.clear()
            self._shapes[shape] = _sent(plan, rank)
        return self._shapes[shape]


def _of(
    table: dict[tuple[Any, ...], LossSum], key: tuple[Any, ...], others: tuple[Any, ...]
) -> LossSum:
    """The sum of a key; of `others` if there are too many keys already."""
    found = table.get(key)
    if found is None:
        key = key if len(table) < MAX_KEYS else others
        found = table.setdefault(key, LossSum())
    return found


def _sent(plan: Plan, rank: int) -> int:
    members = ranks_of(plan)
    if rank not in members:
        return 0
    try:
        program = program_of(plan, members.index(rank))
    except BadLedger:
        return 0
    return sum(s.span.size for s in program.steps if isinstance(s, Send) and s.lossy)
