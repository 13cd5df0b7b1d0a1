"""Records of a ledger, as values whose fields have rules.

A ledger belongs to one rank's session on one engine. It is a sequence of generations, each a
self-contained file: an Opening, the residuals present at its beginning (Kept), and then an Ended
per operation, after the Plan that it follows. Version 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from sys import float_info
from typing import Any, Final, NamedTuple

from dlcpd.contract.codec import MAX_CODEC
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.errors import BadLedger
from dlcpd.contract.messages import (
    DTYPES,
    MAX_ELEMENTS,
    MAX_ENGINES,
    MAX_GROUPS,
    MAX_OPERATION,
    MAX_SCALE,
    MAX_WORLD,
    MIN_SCALE,
    REDUCE_OPS,
)
from dlcpd.contract.schema import (
    Specification,
    integer,
    integers,
    octets,
    one_of,
    problem_among,
    real,
    rows,
    string,
    with_rows,
)
from dlcpd.core.wire.header import MAX_SEGMENTS, MAX_TRANSFERS
from dlcpd.core.wire.sizes import MAX_SEGMENT, UNIT
from dlcpd.schedules.draft import LONGEST

VERSION: Final = 3
MAX_SPANS: Final = MAX_WORLD * MAX_TRANSFERS  # of one operation: a digest for each
MAX_BYTES: Final = MAX_ELEMENTS * 16  # of a tensor
MAX_MASK: Final = 1 + MAX_SEGMENTS // 8
MAX_PLANS: Final = 1 << 20  # of one generation
LEAST_SCALE: Final = float_info.min  # of a residual: below the loss scale, to fit float32
MAX_LOST: Final = MAX_SPANS  # transfers of one operation with missing segments


class Rank(NamedTuple):
    """A rank of the session. `ours`, `theirs`: marks of the tokens that this rank gave to it and
    got from it. In two ledgers of one session they match crosswise."""

    rank: int
    host: str
    ours: str
    theirs: str


class HostRow(NamedTuple):
    """A rank of a group, and the number of its host."""

    rank: int  # in the session
    host: int


class MissingRow(NamedTuple):
    """Missing segments of a transfer. `paths`: see `dlcpd.ledger.masks`; empty if they are not
    known."""

    peer: int
    transfer: int
    out_of: int
    segment_size: int
    mask: bytes  # see dlcpd.ledger.masks
    paths: bytes


@dataclass(frozen=True, slots=True)
class Opening:
    """First record of every generation."""

    version: int = integer(1, 1 << 16)
    software: str = string(64)
    job: str = string(128)
    session: int = integer(0, (1 << 63) - 1)
    rank: int = integer(0, MAX_WORLD - 1)
    engine: int = integer(0, MAX_ENGINES - 1)
    engines: int = integer(1, MAX_ENGINES)
    generation: int = integer(0, 1 << 32)
    whole: int = integer(0, 1)  # 1: the present residuals follow; 0: they were too large
    ranks: list[Rank] = rows(MAX_WORLD, Rank)  # all but this one


@dataclass(frozen=True, slots=True)
class Kept:
    """Residual of an earlier operation that no later one has reapplied: float32, or float64 of a
    float64 tensor. Residuals of codecs are not recorded: they are as large as the gradients."""

    source: int = integer(0, MAX_OPERATION)  # ticket of that operation
    start: int = integer(0, MAX_BYTES)  # byte of the tensor at which the transfer begins
    segment_size: int = integer(1, LONGEST)
    out_of: int = integer(1, MAX_SEGMENTS)
    scale: float = real(LEAST_SCALE, MAX_SCALE)
    mask: bytes = octets(MAX_MASK)
    values: bytes = octets(2 * LONGEST)
    wide: int = integer(0, 1)  # 1: float64


@dataclass(frozen=True, slots=True)
class Plan:
    """Values that operations of equal requests have in common. `size`, `sizes`: bytes."""

    plan: int = integer(0, MAX_PLANS)
    name: str = string(256)
    collective: str = one_of(*COLLECTIVES)
    schedule: str = string(32)
    fingerprint: str = string(16)  # of the schedule, in hexadecimal
    size: int = integer(0, MAX_BYTES)
    sizes: list[int] = integers(MAX_WORLD)
    lossy: int = integer(0, 1)
    dtype: str = one_of(*DTYPES)
    reduce: str = one_of(*REDUCE_OPS)
    bound: float = real(0.0, 0.5)
    group: int = integer(0, MAX_GROUPS - 1)
    members: list[HostRow] = rows(MAX_WORLD, HostRow)
    chunk_bytes: int = integer(UNIT, MAX_SEGMENTS * MAX_SEGMENT)
    part: int = integer(0, MAX_ENGINES - 1)
    parts: int = integer(1, MAX_ENGINES)
    codec: str = string(MAX_CODEC, default="")  # see dlcpd.contract.codec


@dataclass(frozen=True, slots=True)
class Ended:
    """One operation. `done` 0: it failed, and its reapplied residuals are kept again.

    The digests are CRC-32 of this rank's contribution and of its result, chunk by chunk, in the
    order of `dlcpd.ledger.chunks`: four bytes each, little-endian.
    """

    plan: int = integer(0, MAX_PLANS)
    ticket: int = integer(1, MAX_OPERATION)  # the client's number for it
    number: int = integer(1, MAX_OPERATION)  # in its group
    turn: int = integer(0, MAX_OPERATION)  # counts the operations of its name and group, from 0
    done: int = integer(0, 1)
    scale: float = real(MIN_SCALE, MAX_SCALE)
    reapplied: list[int] = integers(MAX_LOST)  # tickets of operations, in the order of addition
    waived: list[MissingRow] = rows(MAX_LOST, MissingRow)
    lost: list[MissingRow] = rows(MAX_LOST, MissingRow)
    contributed: bytes = octets(4 * MAX_SPANS)
    result: bytes = octets(4 * MAX_SPANS)


Record = Opening | Kept | Plan | Ended
KINDS: Final[tuple[type[Record], ...]] = (Opening, Kept, Plan, Ended)
_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
_FIELDS: Final = {kind: Specification.of(kind) for kind in KINDS}


def to_values(record: Record) -> list[Any]:
    """[kind, values of its fields in their order]."""
    kind = type(record)
    return [_NUMBER[kind], [getattr(record, name) for name in _FIELDS[kind].names]]


def from_values_untrusted(value: Any) -> Record:
    """Inverse of `to_values`. Raises: BadLedger that names record and field."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise BadLedger("a record is [kind, values]")
    number, values = value
    if type(number) is not int or not 0 <= number < len(KINDS):
        raise BadLedger(f"the kind of a record is an integer 0..{len(KINDS) - 1}")
    kind = KINDS[number]
    spec = _FIELDS[kind]
    if len(values) != len(spec.fields):
        raise BadLedger(f"{kind.__name__}: needs exactly {', '.join(spec.names)}")
    if wrong := problem_among(values, spec):
        raise BadLedger(f"{kind.__name__}.{wrong}")
    return kind(*with_rows(values, spec))


def ranks_of(plan: Plan) -> list[int]:
    """Ranks of the session, by rank in the plan's group."""
    return [row.rank for row in plan.members]


def hosts_of(rows_: Iterable[HostRow]) -> tuple[tuple[int, ...], ...]:
    """Ranks of the group by host, as `schedules.catalog.Place` has them."""
    hosts: dict[int, list[int]] = {}
    for place, row in enumerate(rows_):
        hosts.setdefault(row.host, []).append(place)
    return tuple(tuple(places) for places in hosts.values())
