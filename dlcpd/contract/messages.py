"""IPC messages: session socket (client <-> control) and lane (client <-> engine).

`contract.frames` turns messages into packets and back; the annotations are the rules that it
checks. `tag` is the number of a kind. Source: docs/ipc.md.
"""

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from dlcpd.contract.codec import MAX_CODEC
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.forms import MAX_TEXT as MAX_TEXT  # noqa: PLC0414  # mypy: re-exported
from dlcpd.contract.forms import IpcMessage, between, most, without
from dlcpd.contract.inquiries import (
    CordonRequest,
    Health,
    HealthRequest,
    Probed,
    ProbeRequest,
    Status,
    StatusRequest,
    Traced,
    TraceRequest,
)
from dlcpd.contract.limits import MAX_ARENA, MAX_WORLD
from dlcpd.contract.times import MAX_TIME

# Later versions only add kinds, and fields with a default at the end: daemons send none of them to
# clients of an older version. After any other change, SERVED has no older ones.
VERSION: Final = 11
SERVED: Final = (VERSION, VERSION - 1)  # versions of clients that a daemon serves
MAX_FRAME: Final = 192 * 1024  # bytes; under the default 208 KiB socket buffer of Linux
MAX_PROOF: Final = 64  # characters: 256 bits in hexadecimal
MAX_RELEASED: Final = 1024  # operations that one frame releases: no more can be in flight
MAX_EXEMPT: Final = 4096  # exempt ranges of one operation; ~ parameters of one bucket
MAX_LAYERS: Final = 4096  # rows of an operation; likewise
MAX_ELEMENTS: Final = 1 << 30  # of one operation
MAX_GROUPS: Final = 1 << 14  # of one session, over its life; 14 bits on the wire
PROBES: Final = MAX_GROUPS - 1  # the group of the daemons' probes; clients have those below
MAX_OPERATION: Final = (1 << 32) - 1  # u32 on the wire; a session ends before it wraps
MAX_STEPS: Final = 1 << 20  # of one program: some 500 MB
MAX_AWAITING: Final = 4 * MAX_TEXT  # characters; an engine names three operations and their ranks
MIN_SCALE: Final = 2.0**-126  # of the loss: normal numbers of float32, the type of loss scalers
MAX_SCALE: Final = 2.0**127

DTYPES: Final = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
    "bool", "complex64", "complex128",
)  # fmt: skip
REDUCE_OPS: Final = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
# Seconds after a client has left in which peers can take the data of its completed operations: a
# rank that writes a checkpoint first is that late.
DELIVERY: Final = 30.0


if TYPE_CHECKING:
    CollectiveName: TypeAlias = str
    Dtype: TypeAlias = str
    ReduceOp: TypeAlias = str
else:  # the type checker cannot read tables
    CollectiveName, Dtype = Literal[tuple(COLLECTIVES)], Literal[DTYPES]
    ReduceOp = Literal[REDUCE_OPS]


class PeerRow(NamedTuple):
    """Address and key of a rank's daemon."""

    rank: int
    host: Annotated[str, most(MAX_TEXT)]  # name used in errors
    endpoint: Annotated[str, most(MAX_TEXT)]  # of its control plane
    key: Annotated[str, most(MAX_TEXT)]  # CURVE key, Z85


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


class Hello(IpcMessage, frozen=True, tag=0):
    """First frame of a client."""

    version: Annotated[int, between(0, 1 << 16)]
    client: Annotated[str, most(MAX_TEXT)]  # for the log: program and process id


class Welcome(IpcMessage, frozen=True, tag=1):
    """The daemon's answer to Hello: the address at which peers reach it."""

    version: Annotated[int, between(0, 1 << 16)]
    host: Annotated[str, most(MAX_TEXT)]  # name used in errors
    endpoint: Annotated[str, most(MAX_TEXT)]  # of the control plane
    public_key: Annotated[str, most(40)]  # CURVE key, Z85


class Join(IpcMessage, frozen=True, tag=2):
    """Become one rank of a job. Answered with Joined, or Refused."""

    job: Annotated[str, most(128)]
    rank: Annotated[int, between(0, MAX_WORLD - 1)]
    world_size: Annotated[int, between(1, MAX_WORLD)]
    arena_bytes: Annotated[int, between(1 << 16, MAX_ARENA)]
    timeout: Annotated[float, between(0.0, MAX_TIME)]  # seconds to wait for all peers
    peers: Annotated[list[PeerRow], most(MAX_WORLD)]
    # computed from the job's secret, and equal on all ranks of this launch of the job;
    # "" = the job has no secret
    proof: Annotated[str, most(MAX_PROOF)] = ""
    # earlier session of this user on this host, whose residuals the new one takes over; 0, or a
    # session that no longer exists: none
    inherits: Annotated[int, between(0, (1 << 63) - 1)] = 0

    def __repr__(self) -> str:
        return without(self, "proof")


class Joined(IpcMessage, frozen=True, tag=3):
    """All peers answered. Carries descriptors: arena (memfd), and a lane (socket) per engine."""

    session: Annotated[int, between(0, (1 << 63) - 1)]
    arena_bytes: Annotated[int, between(1 << 16, MAX_ARENA)]


class Refused(IpcMessage, frozen=True, tag=6):
    """A request on the session socket failed; the socket stays usable."""

    code: Annotated[str, most(64)]
    text: Annotated[str, most(16 * MAX_TEXT)]


class OpenGroup(IpcMessage, frozen=True, tag=7):
    """Operations of a group may follow. Group 0, all ranks in order, is open from the start.

    `ranks` are the members' ranks in the session, by rank in the group, this rank among them.
    All members must use one number for the same ranks.
    """

    group: Annotated[int, between(1, PROBES - 1)]
    name: Annotated[str, most(128)]  # for errors
    ranks: Annotated[list[int], most(MAX_WORLD)]


class CloseGroup(IpcMessage, frozen=True, tag=8):
    """No operation of a group follows; those that are open fail."""

    group: Annotated[int, between(1, PROBES - 1)]


class Submit(Struct, array_like=True, forbid_unknown_fields=True, gc=False, tag=9):
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
    name of contract.codec, or empty; `fill` applies to its rounding errors too. `computes`: of an
    all_reduce that is not in place; the engine reduces into the input, and the client computes the
    output from it: see Due. A codec of GATHERS then encodes the output alone, and nothing of its
    rounding errors is kept. `adds`: of an exact sum or average of a reduce_scatter of two ranks;
    the engine leaves the other rank's contribution in the output, and reads nothing of this rank's
    part of the input: the client adds that part afterwards.
    """

    operation: Annotated[int, between(1, MAX_OPERATION)]
    group: Annotated[int, between(0, PROBES - 1)]
    collective: CollectiveName
    schedule: Annotated[str, most(32)]  # empty: the daemon chooses
    peer: Annotated[int, between(-1, MAX_WORLD - 1)]
    tag: Annotated[int, between(0, (1 << 32) - 1)]
    input: Annotated[int, between(0, MAX_ARENA)]
    input_count: Annotated[int, between(0, MAX_ELEMENTS)]
    output: Annotated[int, between(0, MAX_ARENA)]
    output_count: Annotated[int, between(0, MAX_ELEMENTS)]
    sizes: Annotated[list[Counts], most(MAX_WORLD)]
    dtype: Dtype
    reduce: ReduceOp
    max_loss: Annotated[float, between(0.0, 0.5)]
    fill: Literal["residual", "zero"]
    traffic_class: Annotated[int, between(0, 7)]
    deadline: Annotated[float, between(0.0, MAX_TIME)]  # seconds from `submitted`
    in_place: bool  # True: complete only when the memory may be written again
    name: Annotated[str, most(256)]
    exempt: Annotated[list[ByteRange], most(MAX_EXEMPT)]
    layers: Annotated[list[LayerRow], most(MAX_LAYERS)]
    scale: Annotated[float, between(MIN_SCALE, MAX_SCALE)] = 1.0
    divided: bool = False
    # monotonic clock of this host, seconds, when the client sent this: a busy engine may read it
    # seconds later. 0 = when the engine reads it
    submitted: Annotated[float, between(0.0, 1e12)] = 0.0
    codec: Annotated[str, most(MAX_CODEC)] = ""
    computes: bool = False
    adds: bool = False


class Due(IpcMessage, frozen=True, tag=20):
    """Bytes [start, start + size) of the input of `operation` are reduced: the client computes
    those of the output from them, and answers with Computed. The engine uses neither until then.

    `steps`: how many steps of the operation this engine leaves to the client, each with a Due of
    its own. 0, with a size of 0: none, and there is nothing to answer.
    """

    operation: Annotated[int, between(1, MAX_OPERATION)]
    step: Annotated[int, between(0, MAX_STEPS)]  # of the engine's program
    start: Annotated[int, between(0, MAX_ARENA)]
    size: Annotated[int, between(0, MAX_ARENA)]
    steps: Annotated[int, between(0, MAX_STEPS)]


class Computed(IpcMessage, frozen=True, tag=21):
    """The client has computed a step that was Due. The engine ignores that of any other step.

    `error`: instead, its computation failed, for this reason; the operation then fails on every
    rank.
    """

    operation: Annotated[int, between(1, MAX_OPERATION)]
    step: Annotated[int, between(0, MAX_STEPS)]
    error: Annotated[str, most(MAX_TEXT)] = ""


class Completed(IpcMessage, frozen=True, tag=10):
    """The result is in the arena; of a divided operation, this engine's part of it.

    `released`: its memory may be written again.

    Counts are segments: `sent` of this rank's contribution, `retransmitted`, `waived` of the
    contribution, `reapplied` residual segments added to it, `lost` those missing at this rank
    as an owner. `energy` is the fraction of the contribution's sum of squares that `waived`
    held. `source` is the rank in the group that sent the message of "receive", else -1.
    `also_released`: earlier operations, each as if by a Released.
    """

    operation: Annotated[int, between(1, MAX_OPERATION)]
    released: bool
    sent: Annotated[int, between(0, 1 << 53)]
    retransmitted: Annotated[int, between(0, 1 << 53)]
    waived: Annotated[int, between(0, 1 << 53)]
    reapplied: Annotated[int, between(0, 1 << 53)]
    lost: Annotated[int, between(0, 1 << 53)]
    energy: Annotated[float, between(0.0, 1.0)]
    source: Annotated[int, between(-1, MAX_WORLD - 1)]
    also_released: Annotated[list[int], most(MAX_RELEASED)]


class Released(IpcMessage, frozen=True, tag=11):
    """All peers hold this rank's shard: the memory of `operation` is free again."""

    operation: Annotated[int, between(1, MAX_OPERATION)]


class Failed(IpcMessage, frozen=True, tag=12):
    """`operation` ended without a result; 0 means the whole session failed.

    `rank`, `host`, `address`, `awaiting`: as in contract.errors.Peer.
    """

    operation: Annotated[int, between(0, MAX_OPERATION)]
    code: Annotated[str, most(64)]
    text: Annotated[str, most(16 * MAX_TEXT)]
    rank: Annotated[int, between(-1, MAX_WORLD - 1)] = -1
    host: Annotated[str, most(MAX_TEXT)] = ""
    address: Annotated[str, most(MAX_TEXT)] = ""
    awaiting: Annotated[str, most(MAX_AWAITING)] = ""


class Leave(IpcMessage, frozen=True, tag=13):
    """The client is about to end its session: compare the last results with the peers'."""

    timeout: Annotated[float, between(0.0, 60.0)]  # seconds for the peers to send digests


class Left(IpcMessage, frozen=True, tag=14):
    """The comparison has ended; `unconfirmed` digests of peers did not arrive in time."""

    unconfirmed: Annotated[int, between(0, 1 << 53)]


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
    | HealthRequest
    | Health
    | CordonRequest
    | Due
    | Computed
    | ProbeRequest
    | Probed
)
