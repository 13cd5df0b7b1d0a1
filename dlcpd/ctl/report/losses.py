"""Sections from ledgers (docs/ledger.md): waived segments by tensor and by step."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dlcpd.ctl.report.parts import Section, lines, percent, table
from dlcpd.inspection.run_identity import named
from dlcpd.ledger.masks import unpack_untrusted
from dlcpd.ledger.reader import Ledger, find


@dataclass(slots=True)
class Tensor:
    """The operations of one rank that have the same name."""

    size: int = 0  # bytes
    bound: float = 0.0
    operations: int = 0
    failed: int = 0
    waived: int = 0  # segments
    worst: float = 0.0  # largest share of one transfer
    by_turn: Counter[int] = field(default_factory=Counter)


def of_folder(folder: Path) -> list[Section]:
    """One section for each rank's ledger below. Raises: BadLedger."""
    return [_section(ledger) for ledger in find([folder])]


def _section(ledger: Ledger) -> Section:
    tensors = by_tensor(ledger)
    opening = ledger.opening
    title = f"Ledger of {opening.job}, rank {opening.rank}" + (
        f", engine {opening.engine}" if opening.engines > 1 else ""
    )
    header = (
        "tensor",
        "bytes",
        "bound",
        "operations",
        "failed",
        "segments waived",
        "most of one transfer",
    )
    rows = [
        (
            name,
            one.size,
            percent(one.bound),
            one.operations,
            one.failed,
            one.waived,
            percent(one.worst),
        )
        for name, one in sorted(tensors.items(), key=lambda item: -item[1].waived)
    ]
    ranks = {opening.rank, *(row.rank for row in opening.ranks)}
    hosts = list(dict.fromkeys(row.host for row in opening.ranks))
    said = (
        f"Job {opening.job}, {len(ranks)} ranks, peers on {named(hosts) or 'no host'}; "
        f"written by dlcpd {opening.software}."
    )
    made = {
        "written by": f"dlcpd {opening.software}",
        "folder": str(ledger.folder),
        "hosts of peers": ", ".join(hosts),
    }
    return Section(
        title,
        [said, *_said(tensors.values())],
        [*_by_step(tensors), table("By tensor", header, rows)],
        made,
    )


def by_tensor(ledger: Ledger) -> dict[str, Tensor]:
    """Waived segments of this rank's contributions, by name. Raises: BadLedger."""
    found = dict[str, Tensor]()
    for plan, ended in ledger.entries:
        one = found.setdefault(plan.name, Tensor())
        one.size, one.bound = plan.size, max(one.bound, plan.bound)
        one.operations += 1
        one.failed += not ended.done
        for row in ended.waived:
            missing = unpack_untrusted(row.mask, row.out_of).size
            one.waived += missing
            one.by_turn[ended.turn] += missing
            one.worst = max(one.worst, missing / row.out_of)
        one.by_turn[ended.turn] += 0
    return found


def _said(tensors: Iterable[Tensor]) -> Iterator[str]:
    rows = list(tensors)
    operations, waived = sum(r.operations for r in rows), sum(r.waived for r in rows)
    if not waived:
        yield f"Nothing was waived in {operations} operations."
        return
    worst, bound = max(r.worst for r in rows), max(r.bound for r in rows)
    over = any(r.worst > r.bound for r in rows)
    yield (
        f"{waived} segments were waived in {operations} operations; of one transfer at most "
        f"{percent(worst)}, {'ABOVE' if over else 'within'} the bound of {percent(bound)}."
    )
    if failed := sum(r.failed for r in rows):
        yield f"{failed} operations failed."


def _by_step(tensors: dict[str, Tensor]) -> Iterator[dict[str, object]]:
    total = Counter[int]()
    for one in tensors.values():
        total.update(one.by_turn)
    if total:
        turns = sorted(total)
        yield lines(
            "Segments waived, step by step",
            "",
            "step",
            {"step": turns, "waived": [total[turn] for turn in turns]},
        )
