"""Records of a ledger, as values whose fields have rules.

A ledger belongs to one rank's session on one engine. It is a sequence of generations, each a
self-contained file: an Opening, the residuals present at its beginning (Kept), and then an Ended
per operation, after the Plan that it follows. Version 3.
"""

from collections.abc import Iterable
from sys import float_info
from typing import Annotated, Any, Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from dlcpd.contract.codec import MAX_CODEC
from dlcpd.contract.errors import BadLedger
from dlcpd.contract.forms import MAX_TEXT, Form, between, most, plain
from dlcpd.contract.limits import MAX_ENGINES, MAX_ROUND_TRIP, MAX_WORLD
from dlcpd.contract.messages import (
    MAX_ELEMENTS,
    MAX_GROUPS,
    MAX_OPERATION,
    MAX_SCALE,
    MIN_SCALE,
    CollectiveName,
    Dtype,
    ReduceOp,
)
from dlcpd.core.wire.header import MAX_SEGMENTS, MAX_TRANSFERS
from dlcpd.core.wire.sizes import MAX_SEGMENT, UNIT
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.network import TYPICAL, Costs, HostCapacity

VERSION: Final = 3
MAX_SPANS: Final = MAX_WORLD * MAX_TRANSFERS  # of one operation: a digest for each
MAX_BYTES: Final = MAX_ELEMENTS * 16  # of a tensor
MAX_MASK: Final = 1 + MAX_SEGMENTS // 8
MAX_PLANS: Final = 1 << 20  # of one generation
LEAST_SCALE: Final = float_info.min  # of a residual: below the loss scale, to fit float32
MAX_LOST: Final = MAX_SPANS  # transfers of one operation with missing segments


class _Record(Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """A list of the values of its fields."""


class Rank(NamedTuple):
    """A rank of the session. `ours`, `theirs`: marks of the tokens that this rank gave to it and
    got from it. In two ledgers of one session they match crosswise."""

    rank: int
    host: Annotated[str, most(MAX_TEXT)]
    ours: Annotated[str, most(MAX_TEXT)]
    theirs: Annotated[str, most(MAX_TEXT)]


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


class Opening(_Record, frozen=True):
    """First record of every generation."""

    version: Annotated[int, between(1, 1 << 16)]
    software: Annotated[str, most(64)]
    job: Annotated[str, most(128)]
    session: Annotated[int, between(0, (1 << 63) - 1)]
    rank: Annotated[int, between(0, MAX_WORLD - 1)]
    engine: Annotated[int, between(0, MAX_ENGINES - 1)]
    engines: Annotated[int, between(1, MAX_ENGINES)]
    generation: Annotated[int, between(0, 1 << 32)]
    whole: Annotated[int, between(0, 1)]  # 1: the present residuals follow; 0: they were too large
    ranks: Annotated[list[Rank], most(MAX_WORLD)]  # all but this one


class Kept(_Record, frozen=True):
    """Residual of an earlier operation that no later one has reapplied: float32, or float64 of a
    float64 tensor. Residuals of codecs are not recorded: they are as large as the gradients."""

    source: Annotated[int, between(0, MAX_OPERATION)]  # ticket of that operation
    start: Annotated[int, between(0, MAX_BYTES)]  # byte of the tensor at which the transfer begins
    segment_size: Annotated[int, between(1, LONGEST)]
    out_of: Annotated[int, between(1, MAX_SEGMENTS)]
    scale: Annotated[float, between(LEAST_SCALE, MAX_SCALE)]
    mask: Annotated[bytes, most(MAX_MASK)]
    values: Annotated[bytes, most(2 * LONGEST)]
    wide: Annotated[int, between(0, 1)]  # 1: float64


class Plan(_Record, frozen=True):
    """Values that operations of equal requests have in common. `size`, `sizes`: bytes."""

    plan: Annotated[int, between(0, MAX_PLANS)]
    name: Annotated[str, most(256)]
    collective: CollectiveName
    schedule: Annotated[str, most(32)]
    fingerprint: Annotated[str, most(16)]  # of the schedule, in hexadecimal
    size: Annotated[int, between(0, MAX_BYTES)]
    sizes: Annotated[list[int], most(MAX_WORLD)]
    lossy: Annotated[int, between(0, 1)]
    dtype: Dtype
    reduce: ReduceOp
    bound: Annotated[float, between(0.0, 0.5)]
    group: Annotated[int, between(0, MAX_GROUPS - 1)]
    members: Annotated[list[HostRow], most(MAX_WORLD)]
    chunk_bytes: Annotated[int, between(UNIT, MAX_SEGMENTS * MAX_SEGMENT)]
    part: Annotated[int, between(0, MAX_ENGINES - 1)]
    parts: Annotated[int, between(1, MAX_ENGINES)]
    codec: Annotated[str, most(MAX_CODEC)] = ""  # see dlcpd.contract.codec
    # of the hosts of `members`, by number; none: the network is not known
    network: Annotated[list[HostCapacity], most(MAX_WORLD)] = []  # msgspec copies it
    round_trip: Annotated[int, between(0, MAX_ROUND_TRIP)] = 0  # see Place
    computes: Annotated[int, between(0, 1)] = 0  # 1: the clients computed the results from the sums
    costs: Costs = TYPICAL  # of the network


class Ended(_Record, frozen=True):
    """One operation. `done` 0: it failed, and its reapplied residuals are kept again.

    The digests are CRC-32 of this rank's contribution and of its result, chunk by chunk, in the
    order of `dlcpd.ledger.chunks`: four bytes each, little-endian.
    """

    plan: Annotated[int, between(0, MAX_PLANS)]
    ticket: Annotated[int, between(1, MAX_OPERATION)]  # the client's number for it
    number: Annotated[int, between(1, MAX_OPERATION)]  # in its group
    turn: Annotated[
        int, between(0, MAX_OPERATION)
    ]  # counts the operations of its name and group, from 0
    done: Annotated[int, between(0, 1)]
    scale: Annotated[float, between(MIN_SCALE, MAX_SCALE)]
    reapplied: Annotated[
        list[int], most(MAX_LOST)
    ]  # tickets of operations, in the order of addition
    waived: Annotated[list[MissingRow], most(MAX_LOST)]
    lost: Annotated[list[MissingRow], most(MAX_LOST)]
    contributed: Annotated[bytes, most(4 * MAX_SPANS)]
    result: Annotated[bytes, most(4 * MAX_SPANS)]


Record = Opening | Kept | Plan | Ended
KINDS: Final[tuple[type[Record], ...]] = (Opening, Kept, Plan, Ended)
_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
_FORMS: Final[tuple[Form[Any], ...]] = tuple(map(Form, KINDS))
_VALUES: Final[tuple[Decoder[Record], ...]] = tuple(map(Decoder, KINDS))
_ANY: Final = Decoder(tuple[Annotated[int, between(0, len(KINDS) - 1)], Raw])
_encode: Final = Encoder(enc_hook=plain).encode


def encode(record: Record) -> bytes:
    """The msgpack of [kind, values of its fields in their order]."""
    return _encode((_NUMBER[type(record)], record))


def decode_untrusted(data: bytes) -> Record:
    """Inverse of `encode`. Raises: BadLedger that names record and field."""
    kind = None
    try:
        kind, values = _ANY.decode(data)
        record = _VALUES[kind].decode(values)
    except ValidationError as exc:
        wrong = f"a record is [kind, values], its kind an integer 0..{len(KINDS) - 1}"
        raise BadLedger(wrong if kind is None else _FORMS[kind].problem(exc)) from exc
    except (DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadLedger(f"is no msgpack: {type(exc).__name__}") from exc
    _FORMS[kind].clean(record)
    return record


def ranks_of(plan: Plan) -> list[int]:
    """Ranks of the session, by rank in the plan's group."""
    return [row.rank for row in plan.members]


def hosts_of(rows_: Iterable[HostRow]) -> tuple[tuple[int, ...], ...]:
    """Ranks of the group by host, as `schedules.catalog.Place` has them."""
    hosts: dict[int, list[int]] = {}
    for place, row in enumerate(rows_):
        hosts.setdefault(row.host, []).append(place)
    return tuple(tuple(places) for places in hosts.values())
