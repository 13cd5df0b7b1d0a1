"""Traffic classes: the table that daemons and switches share, or an intent's own table.

Both have the same form. switchcfg reads the shared file and imports no other code of the daemon
than file access (`dlcpd.ipc`) and `dlcpd.starter`.
"""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from switchcfg.intent.table import Source, Table
from switchcfg.intent.toml_lines import lines_of

MAX_CLASSES: Final = 8  # one per queue of an ordinary switch port
DROP_PRECEDENCES: Final = 3  # per class, as in assured forwarding (RFC 2597)
MAX_DSCP: Final = 63  # six bits (RFC 2474 section 3)
SHARED: Final = ("dlcpd.contract", "traffic_classes.toml")


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """One class. `dscp[d]` and `ect[d]` belong to drop precedence d; 0 is protected."""

    name: str
    rank: int  # 0 is served first
    dscp: tuple[int, ...]  # 0..63
    ect: tuple[bool, ...]  # True: sent as ECT(0), so a switch with ECN marks instead of dropping
    share: float  # of a port's buffer


def shared_classes() -> tuple[TrafficClass, ...]:
    """The classes of the table that ships with dlcpd, by rank."""
    text = files(SHARED[0]).joinpath(SHARED[1]).read_text(encoding="utf-8")
    source = Source(SHARED[1], lines_of(text))
    return read_classes(Table(tomllib.loads(text), (), source))


def read_classes(table: Table) -> tuple[TrafficClass, ...]:
    """The classes of a table, by rank. The default of `share` is an equal part.

    Raises: BadIntent.
    """
    count = len(table.values)
    if not 1 <= count <= MAX_CLASSES:
        raise table.error(None, f"{count} classes: need 1 to {MAX_CLASSES}")
    classes = [_row(name, table.table(name), count) for name in table.values]
    classes.sort(key=lambda each: each.rank)
    if [each.rank for each in classes] != list(range(count)):
        raise table.error(None, "ranks must be 0, 1, 2 ... each used once")
    _refuse_twice(table, classes)
    total = sum(each.share for each in classes)
    if total > 1 + 1e-9:
        raise table.error(None, f"the shares sum to {total:.3g}, and at most 1 is possible")
    return tuple(classes)


def _row(name: str, table: Table, count: int) -> TrafficClass:
    if not name.isascii() or not name.isidentifier() or len(name) > 16:
        raise table.error(None, "the name of a class has up to 16 letters, digits and '_'")
    dscp = table.integers("dscp", 0, MAX_DSCP)
    if not 1 <= len(dscp) <= DROP_PRECEDENCES:
        raise table.error("dscp", f"{len(dscp)} drop precedences: need 1 to {DROP_PRECEDENCES}")
    marks = {"ect0": True, "not-ect": False}  # ECT(1) means L4S now (RFC 9331)
    ecn = table.values.get("ecn")
    if not table.has("ecn") or not isinstance(ecn, list) or len(ecn) != len(dscp):
        raise table.error("ecn", "needs one entry per drop precedence, as dscp has")
    for mark in ecn:
        if not isinstance(mark, str) or mark not in marks:
            raise table.error("ecn", f"{mark!r} is not one of {', '.join(marks)}")
    found = TrafficClass(
        name,
        table.integer("rank", 0, MAX_CLASSES - 1),
        dscp,
        tuple(marks[mark] for mark in ecn),
        table.fraction("share", 1 / count),
    )
    table.done()
    return found


def _refuse_twice(table: Table, classes: list[TrafficClass]) -> None:
    owner: dict[int, str] = {}
    for each in classes:
        for dscp in each.dscp:
            if dscp in owner:
                raise table.error(each.name, f"class {owner[dscp]} already has dscp {dscp}")
            owner[dscp] = each.name
