"""IPC messages: session socket (client <-> control) and lane (client <-> engine).

`contract.frames` turns messages into frames and back. The messages of an operation are not
frozen: freezing makes an instance take four times as long to make, and every operation makes
two of each. Source: docs/ipc.md.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dlcpd.contract.codec import MAX_CODEC
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.schema import MAX_TEXT as MAX_TEXT  # noqa: PLC0414  # mypy: re-exported
from dlcpd.contract.schema import (
    flag,
    integer,
    integers,
    mapping,
    one_of,
    real,
    rows,
    string,
)
from dlcpd.contract.times import MAX_TIME

VERSION: Final = 9
MAX_FRAME: Final = 192 * 1024  # bytes; under the default 208 KiB socket buffer of Linux
MAX_WORLD: Final = 256  # ranks; a peer list of this size fits one frame
MAX_PROOF: Final = 64  # characters: 256 bits in hexadecimal
MAX_ENGINES: Final = 8  # of a daemon; each is a process with a lane to every client
MAX_RELEASED: Final = 1024  # operations that one frame releases: no more can be in flight
MAX_EXEMPT: Final = 4096  # exempt ranges of one operation; ~ parameters of one bucket
MAX_LAYERS: Final = 4096  # rows of an operation; likewise
MAX_ELEMENTS: Final = 1 << 30  # of one operation
MAX_GROUPS: Final = 1 << 14  # of one session, over its life; 14 bits on the wire
MAX_OPERATION: Final = (1 << 32) - 1  # u32 on the wire; a session ends before it wraps
MAX_AWAITING: Final = 4 * MAX_TEXT  # characters; an engine names three operations and their ranks
MIN_SCALE: Final = 2.0**-126  # of the loss: normal numbers of float32, the type of loss scalers
MAX_SCALE: Final = 2.0**127
MAX_ARENA: Final = 1 << 36  # 64 GiB of address space, committed only as it is used

DTYPES: Final = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
    "bool", "complex64", "complex128",
)  # fmt: skip
TRACE: Final = ("start", "look", "stop", "take", "forget")  # requests to a recording of events
REDUCE_OPS: Final = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
# Seconds after a client has left in which peers can take the data of its completed operations: a
# rank that writes a checkpoint first is that late.
DELIVERY: Final = 30.0


class PeerRow(NamedTuple):
    """Address and key of a rank's daemon."""

    rank: int
    host: str  # name used in errors
    endpoint: str  # of its control plane
    key: str  # CURVE key, Z85


class Counts(NamedTuple):
    """Elements that pass between this rank and one rank of the group."""

    to_rank: int
    from_rank: int


class ByteRange(NamedTuple):
    """The bytes [start, stop) of an operation's input."""

    start: int
    stop: int


class LayerRow(NamedTuple):
    """Traffic class and bound of the bytes from `start` up to the next row."""

    start: int
    traffic_class: int
    bound: int  # millionths of the segments


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a client."""

    version: int = integer(0, 1 << 16)
    client: str = string()  # for the log: program and process id


@dataclass(frozen=True, slots=True)
class Welcome:
    """The daemon's answer to Hello: the address at which peers reach it."""

    version: int = integer(0, 1 << 16)
    host: str = string()  # name used in errors
    endpoint: str = string()  # of the control plane
    public_key: str = string(40)  # CURVE key, Z85


@dataclass(frozen=True, slots=True)
class Join:
    """Become one rank of a job. Answered with Joined, or Refused."""

    job: str = string(128)
    rank: int = integer(0, MAX_WORLD - 1)
    world_size: int = integer(1, MAX_WORLD)
    arena_bytes: int = integer(1 << 16, MAX_ARENA)
    timeout: float = real(0.0, MAX_TIME)  # seconds to wait for all peers
    peers: list[PeerRow] = rows(MAX_WORLD, PeerRow)
    # computed from the job's secret, and equal on all ranks of this launch of the job;
    # "" = the job has no secret
    proof: str = string(MAX_PROOF, default="", hidden=True)
    # earlier session of this user on this host, whose residuals the new one takes over; 0, or a
    # session that no longer exists: none
    inherits: int = integer(0, (1 << 63) - 1, default=0)


@dataclass(frozen=True, slots=True)
class Joined:
    """All peers answered. Carries descriptors: arena (memfd), and a lane (socket) per engine."""

    session: int = integer(0, (1 << 63) - 1)
    arena_bytes: int = integer(1 << 16, MAX_ARENA)


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Ask for the daemon's state; allowed before and after Join."""

    ledger: int = integer(0, 10_000)  # newest ledger rows wanted


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon's state as a JSON-like map; keys in docs/ipc.md."""

    report: dict[str, Any] = mapping()


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Record events of the operations of an engine, or return them; allowed after Hello.

    One connection at a time records; its recording ends with it.
    """

    engine: int = integer(0, MAX_ENGINES - 1)
    what: str = one_of(*TRACE)


@dataclass(frozen=True, slots=True)
class Traced:
    """State of a recording, with events if they were requested; keys in docs/ipc.md."""

    report: dict[str, Any] = mapping()


@dataclass(frozen=True, slots=True)
class Refused:
    """A request on the session socket failed; the socket stays usable."""

    code: str = string(64)
    text: str = string(16 * MAX_TEXT)


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Operations of a group may follow. Group 0, all ranks in order, is open from the start.

    `ranks` are the members' ranks in the session, by rank in the group, this rank among them.
    All members must use one number for the same ranks.
    """

    group: int = integer(1, MAX_GROUPS - 1)
    name: str = string(128)  # for errors
    ranks: list[int] = integers(MAX_WORLD)


@dataclass(frozen=True, slots=True)
class CloseGroup:
    """No operation of a group follows; those that are open fail."""

    group: int = integer(1, MAX_GROUPS - 1)


@dataclass(slots=True)
class Submit:
    """An operation of a group on `input_count` elements at byte `input` of the arena, with
    `output_count` at byte `output`; both are the same if it works in place.

    Every rank submits the same collectives of a group in the same order; `operation` is this
    session's own number. `peer` is a rank in the group: the root of a collective, the
    receiver of "send", the sender of "receive"; -1 where there is none, or any. `sizes` has a
    row for each rank where they are not all equal.

    `name` keys the error-feedback residual and must be given in bounded mode. `exempt` ranges
    are sorted, within the input; their segments are never waived. `layers` are sorted, the
    first at 0; without any, `traffic_class` and `max_loss` hold throughout. Only all_reduce
    and reduce_scatter may be lossy. `scale` is the loss scale of the values: a residual kept
    under another scale is reapplied times `scale` / that scale.
    `divided`: every engine of the session was sent this, and each runs its own part. `codec`: a
    name of contract.codec, or empty; `fill` applies to its rounding errors too.
    """

    operation: int = integer(1, MAX_OPERATION)
    group: int = integer(0, MAX_GROUPS - 1)
    collective: str = one_of(*COLLECTIVES)
    schedule: str = string(32)  # empty: the daemon chooses
    peer: int = integer(-1, MAX_WORLD - 1)
    tag: int = integer(0, (1 << 32) - 1)
    input: int = integer(0, MAX_ARENA)
    input_count: int = integer(0, MAX_ELEMENTS)
    output: int = integer(0, MAX_ARENA)
    output_count: int = integer(0, MAX_ELEMENTS)
    sizes: list[Counts] = rows(MAX_WORLD, Counts)
    dtype: str = one_of(*DTYPES)
    reduce: str = one_of(*REDUCE_OPS)
    max_loss: float = real(0.0, 0.5)
    fill: str = one_of("residual", "zero")
    traffic_class: int = integer(0, 7)
    deadline: float = real(0.0, MAX_TIME)  # seconds from `submitted`
    in_place: bool = flag()  # True: complete only when the memory may be written again
    name: str = string(256)
    exempt: list[ByteRange] = rows(MAX_EXEMPT, ByteRange)
    layers: list[LayerRow] = rows(MAX_LAYERS, LayerRow)
    scale: float = real(MIN_SCALE, MAX_SCALE, default=1.0)
    divided: bool = flag(False)
    # monotonic clock of this host, seconds, when the client sent this: a busy engine may read it
    # seconds later. 0 = when the engine reads it
    submitted: float = real(0.0, 1e12, default=0.0)
    codec: str = string(MAX_CODEC, default="")


@dataclass(slots=True)
class Completed:
    """The result is in the arena; of a divided operation, this engine's part of it.

    `released`: its memory may be written again.

    Counts are segments: `sent` of this rank's contribution, `retransmitted`, `waived` of the
    contribution, `reapplied` residual segments added to it, `lost` those missing at this rank
    as an owner. `energy` is the fraction of the contribution's sum of squares that `waived`
    held. `source` is the rank in the group that sent the message of "receive", else -1.
    `also_released`: earlier operations, each as if by a Released.
    """

    operation: int = integer(1, MAX_OPERATION)
    released: bool = flag()
    sent: int = integer(0, 1 << 53)
    retransmitted: int = integer(0, 1 << 53)
    waived: int = integer(0, 1 << 53)
    reapplied: int = integer(0, 1 << 53)
    lost: int = integer(0, 1 << 53)
    energy: float = real(0.0, 1.0)
    source: int = integer(-1, MAX_WORLD - 1)
    also_released: list[int] = integers(MAX_RELEASED)


@dataclass(slots=True)
class Released:
    """All peers hold this rank's shard: the memory of `operation` is free again."""

    operation: int = integer(1, MAX_OPERATION)


@dataclass(slots=True)
class Failed:
    """`operation` ended without a result; 0 means the whole session failed.

    `rank`, `host`, `address`, `awaiting`: as in contract.errors.Peer.
    """

    operation: int = integer(0, MAX_OPERATION)
    code: str = string(64)
    text: str = string(16 * MAX_TEXT)
    rank: int = integer(-1, MAX_WORLD - 1, default=-1)
    host: str = string(default="")
    address: str = string(default="")
    awaiting: str = string(MAX_AWAITING, default="")


@dataclass(slots=True)
class Leave:
    """The client is about to end its session: compare the last results with the peers'."""

    timeout: float = real(0.0, 60.0)  # seconds for the peers to send digests


@dataclass(slots=True)
class Left:
    """The comparison has ended; `unconfirmed` digests of peers did not arrive in time."""

    unconfirmed: int = integer(0, 1 << 53)


Message = (
    Hello
    | Welcome
    | Join
    | Joined
    | StatusRequest
    | Status
    | Refused
    | OpenGroup
    | CloseGroup
    | Submit
    | Completed
    | Released
    | Failed
    | Leave
    | Left
    | TraceRequest
    | Traced
)
