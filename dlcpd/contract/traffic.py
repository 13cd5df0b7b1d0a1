"""Traffic classes, read from the one table that hosts and switches share.

A datagram's **tag** says its class and its drop precedence:
`class rank * DROP_PRECEDENCES + drop precedence`.
"""

import tomllib
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Final

from dlcpd.contract.errors import BadConfig

MAX_CLASSES: Final = 8  # one per queue of an ordinary switch port
DROP_PRECEDENCES: Final = 4  # values per class in a tag; the table uses up to three, as AF does
MAX_DSCP: Final = 63  # six bits (RFC 2474 section 3)
PROTECTED: Final = (
    0  # drop precedence of control, exempt ranges, retransmissions, results: they must arrive
)


class Ecn(IntEnum):
    """ECN field of the IP header (RFC 3168 section 5)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """One row of the table. `dscp[d]` and `ecn[d]` belong to drop precedence d; 0 is protected."""

    name: str
    rank: int  # 0 is served first
    dscp: tuple[int, ...]  # 0..63, never the whole TOS byte
    ecn: tuple[Ecn, ...]

    def tag(self, drop_precedence: int = PROTECTED) -> int:
        """Tag of this class and a drop precedence, for the header of a datagram."""
        return self.rank * DROP_PRECEDENCES + drop_precedence


def parse_traffic_classes(text: str) -> dict[str, TrafficClass]:
    """Parse the TOML table, ordered by rank.

    Raises: BadConfig naming the class and field.
    """
    try:
        table = tomllib.loads(text)
    # TOMLDecodeError, or int() of 5,000 digits; RecursionError of arrays nested too deeply
    except (ValueError, RecursionError) as exc:
        raise BadConfig(f"traffic classes: {exc}") from exc
    classes = sorted((_row(name, row) for name, row in table.items()), key=lambda c: c.rank)
    if not classes or len(classes) > MAX_CLASSES:
        raise BadConfig(f"traffic classes: {len(classes)} classes, need 1..{MAX_CLASSES}")
    if [c.rank for c in classes] != list(range(len(classes))):
        raise BadConfig("traffic classes: ranks must be 0, 1, 2 ... each used once")
    points = [dscp for c in classes for dscp in c.dscp]
    if len(set(points)) != len(points):
        raise BadConfig("traffic classes: a dscp is used twice")
    return {c.name: c for c in classes}


def _row(name: str, row: object) -> TrafficClass:
    if not isinstance(row, dict) or set(row) != {"rank", "dscp", "ecn"}:
        raise BadConfig(f"traffic class [{name}]: needs exactly rank, dscp and ecn")
    rank, dscp, ecn = row["rank"], row["dscp"], row["ecn"]
    if type(rank) is not int:
        raise BadConfig(f"traffic class [{name}]: rank is an integer")
    if not isinstance(dscp, list) or not 1 <= len(dscp) < DROP_PRECEDENCES:
        raise BadConfig(f"traffic class [{name}]: dscp is a list of 1..{DROP_PRECEDENCES - 1}")
    if not all(type(point) is int and 0 <= point <= MAX_DSCP for point in dscp):
        raise BadConfig(f"traffic class [{name}]: a dscp is an integer 0..{MAX_DSCP}")
    marks = {"not-ect": Ecn.NOT_ECT, "ect0": Ecn.ECT0}  # ECT(1) means L4S now (RFC 9331)
    if not isinstance(ecn, list) or not all(isinstance(m, str) and m in marks for m in ecn):
        raise BadConfig(f"traffic class [{name}]: ecn is a list of {', '.join(marks)}")
    if len(ecn) != len(dscp):
        raise BadConfig(f"traffic class [{name}]: dscp and ecn have one entry per drop precedence")
    return TrafficClass(name, rank, tuple(dscp), tuple(marks[m] for m in ecn))


@cache
def traffic_classes() -> dict[str, TrafficClass]:
    """The table that ships with the package, by name."""
    return parse_traffic_classes(files(__package__).joinpath("traffic_classes.toml").read_text())
