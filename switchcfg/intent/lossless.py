"""Lossless classes: other traffic, such as RoCE, that is paused instead of dropped (PFC).

They exist in addition to the classes of dlcpd. On every platform, a lossless class has the queue
and the traffic class with the number of its priority.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from switchcfg.intent.classes import MAX_DSCP, TrafficClass
from switchcfg.intent.table import Table

PRIORITIES: Final = 8  # of PFC: three bits of a VLAN tag (IEEE 802.1Qbb)
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")
CABLE: Final = re.compile(r"(\d{1,5})m")
MAX_CABLE: Final = 40_000  # metres; the limit of vendors' headroom calculations
MIN_MARK, MAX_MARK = 1 << 12, 1 << 28  # bytes of a queue
# Bytes of queue at which marking begins and at which all is marked: RoCE mode of Cumulus Linux 5.x.
MARK: Final = (150_000, 1_500_000)


@dataclass(frozen=True, slots=True)
class Lossless:
    """One row of [[lossless]]."""

    name: str
    priority: int  # of PFC; its queue and its traffic class have the same number
    dscp: tuple[int, ...]
    share: int  # percent of the rate that strict queues leave: a weight among non-strict queues
    cable: int  # metres, for the headroom; 0: the switch's value stays
    mark: tuple[int, int] | None  # bytes of queue (begin, certain) of ECN; None: it does not mark
    cnp: int | None  # DSCP of its congestion notifications, which go to the first strict queue


def read_lossless(
    root: Table,
    classes: tuple[TrafficClass, ...],
    keep_dscp: Collection[int],
    keep_queues: Collection[int],
) -> tuple[Lossless, ...]:
    """The lossless classes, by priority. Raises: BadIntent."""
    found: dict[int, Lossless] = {}
    names = {each.name for each in classes}
    points = {dscp: f"class {each.name!r} sends it" for each in classes for dscp in each.dscp}
    points |= dict.fromkeys(keep_dscp, "[keep.dscp] already has it")
    cnps: list[tuple[Table, int | None]] = []
    shares = 0
    for table in root.tables("lossless"):
        one = _row(table, points)
        if one.name in names:
            raise table.error("name", f"{one.name!r} is the name of two lossless classes")
        if one.priority in keep_queues:
            raise table.error("priority", f"queue {one.priority} is a kept queue ([keep])")
        if one.priority in found:
            raise table.error(
                "priority", f"class {found[one.priority].name!r} already has {one.priority}"
            )
        shares += one.share
        if shares > 100:  # percent
            raise table.error(
                "share",
                f"the shares of the lossless classes sum to {shares}, and at most 100 is possible",
            )
        names.add(one.name)
        points |= dict.fromkeys(one.dscp, f"lossless class {one.name!r} already has it")
        found[one.priority] = one
        cnps.append((table, one.cnp))
    mine = {dscp for each in classes for dscp in each.dscp}
    for table, cnp in cnps:  # a DSCP of a traffic class is allowed: it has a strict queue already
        if cnp in points and cnp not in mine:
            raise table.error("cnp", f"code point {cnp}: {points[cnp]}")
    return tuple(found[priority] for priority in sorted(found))


def read_cable(table: Table) -> int:
    """The length of a cable in metres; 0: not given. Raises: BadIntent."""
    cable = table.text("cable", CABLE, 'length such as "40m"', "0m")
    metres = int(cable.removesuffix("m"))
    if "cable" in table.values and not 1 <= metres <= MAX_CABLE:
        raise table.error("cable", f"{cable} is outside 1m..{MAX_CABLE}m")
    return metres


def _row(table: Table, points: Mapping[int, str]) -> Lossless:
    table.expect("ecn", "cnp")
    name = table.text("name", NAME, "name (up to 16 letters, digits and '_')")
    priority = table.integer("priority", 0, PRIORITIES - 1)
    dscp = table.integers("dscp", 0, MAX_DSCP)
    if not dscp:
        raise table.error("dscp", "needs at least one code point")
    for each in dscp:
        if each in points:
            raise table.error("dscp", f"code point {each}: {points[each]}")
    share = table.integer("share", 1, 100)
    metres = read_cable(table)
    cnp = table.integer("cnp", 0, MAX_DSCP, -1)
    ecn = table.flag("ecn", True)
    mark = table.sizes("mark", MIN_MARK, MAX_MARK, MARK)
    if not ecn and "mark" in table.values:
        raise table.error("mark", "has no effect with ecn = false: remove it")
    table.done()
    return Lossless(
        name, priority, dscp, share, metres, mark if ecn else None, cnp if cnp >= 0 else None
    )
