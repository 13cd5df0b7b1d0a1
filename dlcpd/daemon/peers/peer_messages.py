"""Messages between control processes, over ZeroMQ. Peers are authenticated, but not trusted.

A frame is the msgpack of `[OLDEST_PEER, kind, {field: value}]`. Every message goes
one way, from the sender's DEALER to the receiver's ROUTER, and names both ranks.
`session` is the sender's session; `echo` is the receiver's session as the sender knows it, 0 =
unknown: so no message of an earlier run of a job takes effect.
"""

import ipaddress
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, Self

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from dlcpd.contract.errors import PeerError
from dlcpd.contract.forms import Form, between, most, plain, without
from dlcpd.contract.limits import MAX_ENGINES, MAX_ROUND_TRIP, MAX_WORLD
from dlcpd.contract.messages import MAX_OPERATION, MAX_PROOF
from dlcpd.core.wire.header import MAX_PATHS
from dlcpd.io.commands import (
    MAX_ABORT_TEXT,
    MAX_BEGUN,
    NO_PEER,
    Begun,
    Operation,
    Stream,
    UdpAddress,
)
from dlcpd.schedules.network import MAX_RATE, TYPICAL, Costs, HostCapacity, Rails

PEER_VERSION: Final = 11
# The oldest version with whose daemons this one exchanges data: one less than its own, if the newer
# one only adds kinds, and fields with a default; its own after any other change, or one of
# schedules or datagrams. Frames are of this version, so that both sides can read them, and hellos
# say which is the sender's newest.
OLDEST_PEER: Final = 11
SPOKEN: Final = tuple(range(PEER_VERSION, OLDEST_PEER - 1, -1))
MAX_PEER_FRAME: Final = 32 * 1024  # bytes; twice the largest message
MAX_SESSION: Final = (1 << 63) - 1
UNKNOWN: Final = 0  # a round trip that is yet to be measured
MAX_REASON: Final = 4096  # characters: room for an error that quotes another one
MAX_VERSION: Final = (1 << 31) - 1  # of a network
MAX_WHY: Final = 256  # characters
MAX_ROUTES: Final = MAX_WORLD  # 18 KB
MAX_PROBE: Final = 64 << 20  # bytes of a round, one way: 0.05 s at 10 Gbit/s
MAX_ABORTED: Final = 12  # operations of one Abort: 25 KB, if each character has four bytes


class MalformedPeerMessage(PeerError):
    """A peer's frame is no message of this protocol; `reason` is its counter."""

    code = "malformed_peer_message"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class OtherVersion(MalformedPeerMessage):
    """A peer speaks another version of this protocol."""

    def __init__(self, version: int) -> None:
        super().__init__("other_version", f"{version}, this is {SPOKEN}")
        self.version = version


class _PeerMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The fields of every message."""

    job: Annotated[str, most(128)]
    from_rank: Annotated[int, between(0, MAX_WORLD - 1)]
    to_rank: Annotated[int, between(0, MAX_WORLD - 1)]
    session: Annotated[int, between(1, MAX_SESSION)]
    echo: Annotated[int, between(0, MAX_SESSION)]


class PeerHello(_PeerMessage, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """One rank to another: the sender's endpoints, and settings that must be equal. Those of newer
    versions may have more fields."""

    answer: bool  # the sender lacks values of the receiver, which is to answer
    serving: bool  # the sender's engines serve its session
    host: Annotated[str, most(255)]
    proof: Annotated[str, most(MAX_PROOF)]  # of the job's secret; "" = none
    token: Annotated[int, Meta(ge=1)]  # in the data for the sender
    # keys the checksums of data for the sender, or their encryption; hexadecimal
    secret: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32,64}\Z")]
    seed: Annotated[int, Meta(ge=0)]  # the sender's, the same to all; rank 0's keys digests
    # by engine, one per path; all engines of a host have the same number
    endpoints: Annotated[list[UdpAddress], most(MAX_ENGINES * MAX_PATHS)]
    engines: Annotated[int, between(1, MAX_ENGINES)]
    world_size: Annotated[int, between(0, 1 << 16)]
    chunk_bytes: Annotated[int, between(0, 1 << 30)]
    digest_every: Annotated[int, between(0, 1 << 20)]
    checksum: Annotated[int, between(0, 1)]
    data_encryption: Annotated[int, between(0, 1)]  # 0: none; 1: AES-256-GCM
    # of the sender's host, if it is known: a list, whose texts are made harmless like all others
    capacity: Annotated[list[HostCapacity], most(1)] = []
    # microseconds, the longest to any peer of the sender; UNKNOWN: not all links are up yet
    round_trip: Annotated[int, between(0, MAX_ROUND_TRIP)] = UNKNOWN
    costs: Costs = TYPICAL  # of the sender's engines
    newest: Annotated[int, between(0, 1 << 16)] = 0  # PEER_VERSION; 0: that of the frame

    def __repr__(self) -> str:
        return without(self, "proof", "secret")


class Goodbye(_PeerMessage, frozen=True):
    """The sender's session ended, for the reason given."""

    code: Annotated[str, most(64)]
    text: Annotated[str, most(MAX_REASON)]


class AbortedRow(NamedTuple):
    """An operation of one engine that the sender aborted, and why."""

    stream: Stream
    operation: Operation
    text: Annotated[str, most(MAX_ABORT_TEXT)]
    lost: Annotated[int, between(-1, MAX_WORLD - 1)]  # rank that the sender lost; -1: not the cause


class Abort(_PeerMessage, frozen=True):
    """The sender aborted operations; its session goes on. In one message, as most fail together."""

    engine: Annotated[int, between(0, MAX_ENGINES - 1)]
    aborted: Annotated[list[AbortedRow], Meta(min_length=1, max_length=MAX_ABORTED)]


class Leaving(_PeerMessage, frozen=True):
    """The sender's client left, after these operations of one engine: its session delivers them,
    and then says Goodbye. `last`: the list is complete."""

    engine: Annotated[int, between(0, MAX_ENGINES - 1)]
    text: Annotated[str, most(MAX_REASON)]
    begun: Annotated[list[Begun], most(MAX_BEGUN)]
    last: bool


class HostNews(_PeerMessage, frozen=True):
    """The sender's host has another capacity now. To rank 0, which confirms it: PlanStep.HEARD."""

    serial: Annotated[int, between(1, MAX_VERSION)]  # counts up
    capacity: Annotated[list[HostCapacity], most(1)]  # none: the host has no topology any more


class StreamRow(NamedTuple):
    """An operation of a stream of one engine."""

    engine: Annotated[int, between(0, MAX_ENGINES - 1)]
    stream: Stream
    operation: Operation


class NetworkRow(NamedTuple):
    """A host of a job and its capacity, as in HostCapacity."""

    host: Annotated[str, most(255)]
    out_bps: Rails
    in_bps: Rails
    rack: Annotated[str, most(255)]
    up_bps: Annotated[int, between(0, MAX_RATE)]
    down_bps: Annotated[int, between(0, MAX_RATE)]

    @classmethod
    def of(cls, host: str, capacity: HostCapacity) -> Self:
        """The row of a host."""
        return cls(host, *capacity)

    @property
    def capacity(self) -> HostCapacity:
        """Of the host."""
        return HostCapacity(*self[1:])


class PlanStep(IntEnum):
    """Steps of an offered network, in the order of rank 0; and HEARD, which confirms a HostNews."""

    OFFER = 0
    PROMISE = 1
    ADOPT = 2
    CANCEL = 3
    HEARD = 4


class PlanAsk(_PeerMessage, frozen=True):
    """Rank 0 to another: a step of the network with this version, or of that HostNews."""

    version: Annotated[int, between(1, MAX_VERSION)]
    step: PlanStep
    # OFFER: the job's hosts, in the order of their first rank, and the digest of that network
    network: Annotated[list[NetworkRow], most(MAX_WORLD)]
    digest: Annotated[bytes, most(16)]
    # ADOPT: the first operations of the network, and that of other streams
    firsts: Annotated[list[StreamRow], most(MAX_BEGUN)]
    rest: Annotated[int, between(0, MAX_OPERATION)]


class PlanAnswer(_PeerMessage, frozen=True):
    """To rank 0: the sender has done a step, or refuses it for the reason `why`."""

    version: Annotated[int, between(1, MAX_VERSION)]
    step: PlanStep
    limits: Annotated[list[StreamRow], most(MAX_BEGUN)]  # PROMISE: as in NetworkPromised
    why: Annotated[str, most(MAX_WHY)]  # "" = done


class LinkRow(NamedTuple):
    """One direction of a host's link, as `dlcpd.planning.passive.LinkRates`."""

    most: Annotated[int, between(0, MAX_RATE)]
    rate: Annotated[int, between(0, MAX_RATE)]
    part: Annotated[int, between(0, 100)]


class HostRates(_PeerMessage, frozen=True):
    """To rank 0: the link of the sender's host in the last window."""

    out: LinkRow
    into: LinkRow


class ProbeStep(IntEnum):
    """Steps of a probe, in the order of rank 0."""

    BEGIN = 0  # answered with routers
    ROUND = 1  # answered with a rate; repeated for each round
    END = 2  # answered with the traffic beside it; clients that wait for it are let in
    WAIT = 3  # of a rank to rank 0: its client waits, and rank 0 answers END unless it probes


class LinkProbeAsk(_PeerMessage, frozen=True):
    """Rank 0 to another: a step of a probe. Fields from `target` on are those of ROUND, as in
    ProbeFlows."""

    serial: Annotated[int, between(1, MAX_VERSION)]  # counts up with each step
    step: ProbeStep
    target: Annotated[int, between(NO_PEER, MAX_WORLD - 1)]
    out_bytes: Annotated[int, between(0, MAX_PROBE)]
    source: Annotated[int, between(NO_PEER, MAX_WORLD - 1)]
    in_bytes: Annotated[int, between(0, MAX_PROBE)]
    idle: bool


class RouteRow(NamedTuple):
    """The routers that answered on the sender's paths to a rank."""

    rank: Annotated[int, between(0, MAX_WORLD - 1)]
    routers: Annotated[int, between(0, 255)]  # how many, on the shortest
    first: Annotated[str, most(64)]  # address of the nearest; "" = it did not answer


class LinkProbeAnswer(_PeerMessage, frozen=True):
    """To rank 0: the sender has done a step, or cannot for the reason `why`."""

    serial: Annotated[int, between(1, MAX_VERSION)]
    step: ProbeStep
    bps: Annotated[int, between(0, MAX_RATE)]  # ROUND: of what it received; 0: nothing
    routes: Annotated[list[RouteRow], most(MAX_ROUTES)]  # BEGIN; to a rank one for each rail
    beside: Annotated[str, most(128)]  # END: a job whose traffic ran beside it; "" = none
    why: Annotated[str, most(MAX_WHY)]  # "" = done


PlanMessage = HostNews | PlanAsk | PlanAnswer | HostRates | LinkProbeAsk | LinkProbeAnswer
Addressed = Goodbye | Abort | Leaving | PlanMessage  # of a link that is up
PeerMessage = PeerHello | Addressed
# Kinds are added at the end: a peer of this version that lacks a kind counts and drops it.
_KINDS: Final[tuple[type[PeerMessage], ...]] = (
    PeerHello,
    Goodbye,
    Abort,
    Leaving,
    HostNews,
    PlanAsk,
    PlanAnswer,
    HostRates,
    LinkProbeAsk,
    LinkProbeAnswer,
)
_FORMS: Final[tuple[Form[Any], ...]] = tuple(map(Form, _KINDS))
_FIELDS: Final[tuple[Decoder[PeerMessage], ...]] = tuple(map(Decoder, _KINDS))
# The kind and the fields are read after the version: other versions have others.
_FRAME: Final = Decoder(tuple[Annotated[int, between(0, 1 << 16)], Raw, Raw])
_KIND: Final = Decoder(Annotated[int, between(0, len(_KINDS) - 1)])
_encode: Final = Encoder(enc_hook=plain).encode


def pack(message: PeerMessage) -> bytes:
    """The frame of a message."""
    return _encode((OLDEST_PEER, _KINDS.index(type(message)), message))


def unpack_peer_untrusted(data: bytes) -> PeerMessage:
    """The message in a frame.

    Raises: MalformedPeerMessage, and nothing else, for any bytes.
    """
    if len(data) > MAX_PEER_FRAME:
        raise MalformedPeerMessage("too_long", f"{len(data)} B, at most {MAX_PEER_FRAME}")
    try:
        version, kind, fields = _FRAME.decode(data)
        if not OLDEST_PEER - 1 <= version <= PEER_VERSION:
            raise OtherVersion(version)
        message = _message(kind, fields)
        if isinstance(message, PeerHello) and max(version, message.newest) < OLDEST_PEER:
            raise OtherVersion(version)
        return message
    except ValidationError as exc:
        raise MalformedPeerMessage("no_frame", "need [version, kind, fields]") from exc
    except (DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise MalformedPeerMessage("no_msgpack", f"{type(exc).__name__}") from exc


def _message(kind: Raw, fields: Raw) -> PeerMessage:
    try:
        number = _KIND.decode(kind)
    except ValidationError as exc:
        wrong = f"a kind is an integer 0..{len(_KINDS) - 1}"
        raise MalformedPeerMessage("unknown_kind", wrong) from exc
    try:
        message: PeerMessage = _FIELDS[number].decode(fields)
    except ValidationError as exc:
        raise MalformedPeerMessage("bad_field", _FORMS[number].problem(exc)) from exc
    if isinstance(message, PeerHello) and (
        wrong := _endpoint_problem(message.endpoints, message.engines)
    ):
        raise MalformedPeerMessage("bad_field", f"PeerHello.endpoints: {wrong}")
    _FORMS[number].clean(message)
    return message


def _endpoint_problem(endpoints: list[UdpAddress], engines: int) -> str:
    """Engines send to these without a check, so each must be a unicast address and port."""
    if not endpoints or len(endpoints) % engines:
        return f"needs as many for each of {engines} engines, and at least one"
    for address, port in endpoints:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return "no IP address"
        if parsed.is_multicast or parsed.is_unspecified or not 1 <= port <= 65535:
            return f"nothing can be sent to {parsed} port {port}"
        if "%" in address:
            return f"the zone of {parsed} means something on its own host only"
    return ""
