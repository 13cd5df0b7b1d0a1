"""Reads ledgers as a whole, checks them, and groups them with those of their peers."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from dlcpd.contract.errors import BadLedger
from dlcpd.ledger.frames import records_untrusted
from dlcpd.ledger.generations import SUFFIX
from dlcpd.ledger.records import VERSION, Ended, Kept, Opening, Plan, Rank, Record

MAX_FILE: Final = 1 << 36  # bytes of a generation; a ninth of a ledger, 114 MiB by default


class Entry(NamedTuple):
    """One operation of one rank."""

    plan: Plan
    ended: Ended


@dataclass(slots=True)
class Ledger:
    """Ledger of one rank's session on one engine."""

    folder: Path
    opening: Opening  # of the first generation that is there
    kept: list[Kept] = field(default_factory=list)  # residuals at its beginning
    entries: list[Entry] = field(default_factory=list)  # in the order of their ends

    @property
    def rank(self) -> int:
        return self.opening.rank

    def peer(self, rank: int) -> Rank | None:
        """The row of another rank; None if there is none."""
        return next((row for row in self.opening.ranks if row.rank == rank), None)

    def meets(self, other: "Ledger") -> bool:
        """Whether both ledgers are of one session and engine."""
        mine, theirs = self.peer(other.rank), other.peer(self.rank)
        return (
            mine is not None
            and theirs is not None
            and (mine.ours, mine.theirs) == (theirs.theirs, theirs.ours)
            and self.opening.engine == other.opening.engine
        )


def read(folder: Path) -> Ledger:
    """The ledger in a folder. Raises: BadLedger that names file and offset."""
    files = sorted(folder.glob(f"*{SUFFIX}"))
    ledger: Ledger | None = None
    for place, file in enumerate(files):
        try:
            found = _records(file, last=place + 1 == len(files))
            opening = _opening(found)
            if ledger is None:
                ledger = Ledger(folder, opening)
            elif opening.generation != ledger.opening.generation + place:
                raise BadLedger(f"is generation {opening.generation}: one before it is missing")
            _take(ledger, found, first=place == 0)
        except BadLedger as exc:
            raise BadLedger(f"{file}: {exc}") from exc
    if ledger is None:
        raise BadLedger(f"{folder}: holds no ledger, which is files {SUFFIX}")
    return ledger


def find(places: Iterable[Path]) -> list[Ledger]:
    """All ledgers in these folders, and in those below. Raises: BadLedger."""
    folders = dict[Path, None]()
    for place in places:
        below = sorted({file.parent.resolve() for file in place.rglob(f"*{SUFFIX}")})
        if not below:
            raise BadLedger(f"{place}: no ledger is there")
        folders |= dict.fromkeys(below)
    return [read(folder) for folder in folders]


def runs(ledgers: Iterable[Ledger]) -> list[dict[int, Ledger]]:
    """Ledgers of each session, by rank. Raises: BadLedger that names a rank without a ledger."""
    left, found = sorted(ledgers, key=lambda one: (one.rank, str(one.folder))), []
    while left:
        first = left[0]
        run = {first.rank: first} | {one.rank: one for one in left[1:] if first.meets(one)}
        for row in first.opening.ranks:
            if row.rank not in run:
                raise BadLedger(
                    f"no ledger of rank {row.rank} of job {first.opening.job}, which is on host "
                    f"{row.host}: give its folder as well (this one is {first.folder})"
                )
        left = [one for one in left if one not in run.values()]
        found.append(dict(sorted(run.items())))
    return found


def _records(file: Path, *, last: bool) -> Iterator[Record]:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size > MAX_FILE:
                raise BadLedger(f"has more than {MAX_FILE} B")
            data = opened.read()
    except OSError as exc:
        raise BadLedger(f"cannot be read: {exc.strerror}") from exc
    return records_untrusted(data, may_be_torn=last)


def _opening(found: Iterator[Record]) -> Opening:
    opening = next(found, None)
    if not isinstance(opening, Opening):
        raise BadLedger("does not begin with an opening")
    if opening.version != VERSION:
        raise BadLedger(f"is of version {opening.version}, and this dlcpd reads {VERSION}")
    return opening


def _take(ledger: Ledger, found: Iterator[Record], *, first: bool) -> None:
    """Add the other records of a generation."""
    plans = dict[int, Plan]()
    for record in found:
        match record:
            case Plan():
                plans[record.plan] = record
            case Ended():
                if record.plan not in plans:
                    raise BadLedger(f"operation {record.number} has no plan")
                ledger.entries.append(Entry(plans[record.plan], record))
            case Kept():
                if first:
                    ledger.kept.append(record)
            case Opening():
                raise BadLedger("has a second opening")
