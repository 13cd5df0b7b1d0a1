"""`switchcfg history`: time, device, plan, operator and state of each applied plan."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from switchcfg.cli.records import Damaged, Record
from switchcfg.plan.plan import digest
from switchcfg.plan.text import signs

Entries = Sequence[tuple[str, Record | Damaged]]
SHORT: Final = 8  # digits of a plan's hash in text output, as in `apply` and `doctor`


def lines(entries: Entries) -> Iterator[str]:
    """A table, the newest last."""
    rows: list[tuple[str, ...]] = [("when", "device", "plan", "changes", "who", "state")]
    rows += [_row(device, entry) for device, entry in entries]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def document(entries: Entries) -> dict[str, Any]:
    """The history as a JSON value, with full hashes."""
    return {"history": [_entry(device, entry) for device, entry in entries]}


def _row(device: str, entry: Record | Damaged) -> tuple[str, ...]:
    if isinstance(entry, Damaged):
        return entry.when, device, "-", "-", "-", f"damaged: {entry.why}"
    made, changed, removed = signs([entry.plan])
    by = f" by {entry.undone}" if entry.undone else ""
    return (
        entry.when,
        device,
        digest(entry.plan)[:SHORT],
        f"+{made} ~{changed} -{removed}",
        entry.who or "-",
        f"{entry.state}{by}",
    )


def _entry(device: str, entry: Record | Damaged) -> dict[str, Any]:
    if isinstance(entry, Damaged):
        return {"when": entry.when, "device": device, "state": "damaged", "why": entry.why}
    made, changed, removed = signs([entry.plan])
    return {
        "when": entry.when,
        "device": device,
        "platform": entry.plan.platform,
        "fabric": entry.plan.fabric,
        "plan": digest(entry.plan),
        "added": made,
        "changed": changed,
        "removed": removed,
        "who": entry.who,
        "state": entry.state,
        "rolled_back": entry.undone,
        "diff": entry.diff,
    }
