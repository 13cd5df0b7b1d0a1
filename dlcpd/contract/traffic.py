"""Traffic classes, read from the one table that hosts and switches share."""

import tomllib
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files

from dlcpd.contract.errors import BadConfig

MAX_CLASSES = 8  # one per queue of an ordinary switch port
MAX_DSCP = 63  # six bits (RFC 2474 section 3)


class Ecn(IntEnum):
    """ECN field of the IP header (RFC 3168 section 5)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """One row of the table."""

    name: str
    rank: int  # 0 is served first; also the class number on the wire
    dscp: int  # 0..63, never the whole TOS byte
    ecn: Ecn


def parse_traffic_classes(text: str) -> dict[str, TrafficClass]:
    """Parse the TOML table, ordered by rank.

    Raises: BadConfig naming the class and field.
    """
    try:
        table = tomllib.loads(text)
    except ValueError as exc:  # TOMLDecodeError, and what int() says of 5,000 digits
        raise BadConfig(f"traffic classes: {exc}") from exc
    classes = sorted((_row(name, row) for name, row in table.items()), key=lambda c: c.rank)
    if not classes or len(classes) > MAX_CLASSES:
        raise BadConfig(f"traffic classes: {len(classes)} classes, need 1..{MAX_CLASSES}")
    if [c.rank for c in classes] != list(range(len(classes))):
        raise BadConfig("traffic classes: ranks must be 0, 1, 2 ... each used once")
    if len({c.dscp for c in classes}) != len(classes):
        raise BadConfig("traffic classes: two classes share a dscp")
    return {c.name: c for c in classes}


def _row(name: str, row: object) -> TrafficClass:
    if not isinstance(row, dict) or set(row) != {"rank", "dscp", "ecn"}:
        raise BadConfig(f"traffic class [{name}]: needs exactly rank, dscp and ecn")
    rank, dscp, ecn = row["rank"], row["dscp"], row["ecn"]
    if type(rank) is not int or type(dscp) is not int or not 0 <= dscp <= MAX_DSCP:
        raise BadConfig(f"traffic class [{name}]: rank and dscp are integers, dscp 0..{MAX_DSCP}")
    marks = {"not-ect": Ecn.NOT_ECT, "ect0": Ecn.ECT0}  # ECT(1) means L4S now (RFC 9331)
    if not isinstance(ecn, str) or ecn not in marks:
        raise BadConfig(f"traffic class [{name}]: ecn is one of {', '.join(marks)}")
    return TrafficClass(name, rank, dscp, marks[ecn])


@cache
def traffic_classes() -> dict[str, TrafficClass]:
    """The table that ships with the package, by name."""
    return parse_traffic_classes(files(__package__).joinpath("traffic_classes.toml").read_text())
