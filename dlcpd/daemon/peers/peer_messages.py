"""Messages between control processes, over ZeroMQ. Peers are authenticated, but not trusted.

A frame is the msgpack of `[PEER_VERSION, kind, {field: value}]`. Every message goes
one way, from the sender's DEALER to the receiver's ROUTER, and names both ranks.
`session` is the sender's session; `echo` is the receiver's session as the sender knows it, 0 =
unknown: so no message of an earlier run of a job takes effect.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgpack

from dlcpd.contract.errors import BadMessage, PeerError
from dlcpd.contract.messages import MAX_ENGINES, MAX_OPERATION, MAX_PROOF, MAX_WORLD
from dlcpd.contract.schema import (
    Specification,
    flag,
    integer,
    problem,
    problem_among,
    rows,
    string,
    with_rows,
)
from dlcpd.core.wire.header import MAX_PATHS
from dlcpd.io.commands import MAX_ABORT_TEXT, MAX_BEGUN, Begun, UdpAddress
from dlcpd.ipc.seqpacket import unpack_untrusted

PEER_VERSION: Final = 8
MAX_PEER_FRAME: Final = 32 * 1024  # bytes; twice the largest message
MAX_SESSION: Final = (1 << 63) - 1
MAX_REASON: Final = 4096  # characters: room for an error that quotes another one
MAX_ABORTED: Final = 12  # operations of one Abort: 25 KB, if each character has four bytes
_VERSION: Final = {"type": int, "low": 0, "high": 1 << 16}


class MalformedPeerMessage(PeerError):
    """A peer's frame is no message of this protocol; `reason` is its counter."""

    code = "malformed_peer_message"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class OtherVersion(MalformedPeerMessage):
    """A peer speaks another version of this protocol."""

    def __init__(self, version: int) -> None:
        super().__init__("other_version", f"{version}, this is {PEER_VERSION}")
        self.version = version


@dataclass(frozen=True, slots=True)
class PeerHello:
    """One rank to another: the sender's endpoints, and settings that must be equal."""

    job: str = string(128)
    from_rank: int = integer(0, MAX_WORLD - 1)
    to_rank: int = integer(0, MAX_WORLD - 1)
    session: int = integer(1, MAX_SESSION)
    echo: int = integer(0, MAX_SESSION)
    answer: bool = flag()  # the sender lacks values of the receiver, which is to answer
    serving: bool = flag()  # the sender's engines serve its session
    host: str = string(255)
    proof: str = string(MAX_PROOF, hidden=True)  # of the job's secret; "" = none
    token: int = integer(1, (1 << 64) - 1)  # in the data for the sender
    # keys the checksums of data for the sender, or their encryption; hexadecimal
    secret: str = string(64, hidden=True)
    seed: int = integer(0, (1 << 64) - 1)  # the sender's, the same to all; rank 0's keys digests
    # by engine, one per path; all engines of a host have the same number
    endpoints: list[UdpAddress] = rows(MAX_ENGINES * MAX_PATHS, UdpAddress)  # noqa: RUF009  # field
    engines: int = integer(1, MAX_ENGINES)
    world_size: int = integer(0, 1 << 16)
    chunk_bytes: int = integer(0, 1 << 30)
    digest_every: int = integer(0, 1 << 20)
    checksum: int = integer(0, 1)
    data_encryption: int = integer(0, 1)  # 0: none; 1: AES-256-GCM


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender's session ended, for the reason given."""

    job: str = string(128)
    from_rank: int = integer(0, MAX_WORLD - 1)
    to_rank: int = integer(0, MAX_WORLD - 1)
    session: int = integer(1, MAX_SESSION)
    echo: int = integer(0, MAX_SESSION)
    code: str = string(64)
    text: str = string(MAX_REASON)


class AbortedRow(NamedTuple):
    """An operation of one engine that the sender aborted, and why."""

    stream: int  # number on the wire
    operation: int
    text: str
    lost: int = -1  # rank that the sender lost, if that is why


@dataclass(frozen=True, slots=True)
class Abort:
    """The sender aborted operations; its session goes on. In one message, as most fail together."""

    job: str = string(128)
    from_rank: int = integer(0, MAX_WORLD - 1)
    to_rank: int = integer(0, MAX_WORLD - 1)
    session: int = integer(1, MAX_SESSION)
    echo: int = integer(0, MAX_SESSION)
    engine: int = integer(0, MAX_ENGINES - 1)
    aborted: list[AbortedRow] = rows(MAX_ABORTED, AbortedRow)  # noqa: RUF009  # field


@dataclass(frozen=True, slots=True)
class Leaving:
    """The sender's client left, after these operations of one engine: its session delivers them,
    and then says Goodbye. `last`: the list is complete."""

    job: str = string(128)
    from_rank: int = integer(0, MAX_WORLD - 1)
    to_rank: int = integer(0, MAX_WORLD - 1)
    session: int = integer(1, MAX_SESSION)
    echo: int = integer(0, MAX_SESSION)
    engine: int = integer(0, MAX_ENGINES - 1)
    text: str = string(MAX_REASON)
    begun: list[Begun] = rows(MAX_BEGUN, Begun)  # noqa: RUF009  # field
    last: bool = flag()


PeerMessage = PeerHello | Goodbye | Abort | Leaving
_KINDS: Final[tuple[type[PeerMessage], ...]] = (PeerHello, Goodbye, Abort, Leaving)
_SPECIFICATIONS: Final = {kind: Specification.of(kind) for kind in _KINDS}


def pack(message: PeerMessage) -> bytes:
    """The frame of a message."""
    kind = type(message)
    values = {name: getattr(message, name) for name in _SPECIFICATIONS[kind].names}
    packed: bytes = msgpack.packb([PEER_VERSION, _KINDS.index(kind), values])
    return packed


def unpack_peer_untrusted(data: bytes) -> PeerMessage:
    """The message in a frame.

    Raises: MalformedPeerMessage, and nothing else, for any bytes.
    """
    if len(data) > MAX_PEER_FRAME:
        raise MalformedPeerMessage("too_long", f"{len(data)} B, at most {MAX_PEER_FRAME}")
    try:
        frame = unpack_untrusted(data)
    except BadMessage as exc:
        raise MalformedPeerMessage("no_msgpack", str(exc)) from exc
    if not isinstance(frame, list) or len(frame) != 3:
        raise MalformedPeerMessage("no_frame", "need [version, kind, fields]")
    version, number, values = frame
    if wrong := problem(version, _VERSION):
        raise MalformedPeerMessage("no_frame", f"version {wrong}")
    if version != PEER_VERSION:  # before the fields: other versions have other fields
        raise OtherVersion(version)
    if type(number) is not int or not 0 <= number < len(_KINDS):
        raise MalformedPeerMessage("unknown_kind", f"a kind is an integer 0..{len(_KINDS) - 1}")
    return _checked(_KINDS[number], values)


def _checked(kind: type[PeerMessage], values: Any) -> PeerMessage:
    spec = _SPECIFICATIONS[kind]
    if not isinstance(values, dict) or values.keys() != set(spec.names):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}: other fields than expected")
    ordered = [values[name] for name in spec.names]
    if wrong := problem_among(ordered, spec):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}.{wrong}")
    if kind is PeerHello and (wrong := _secret_problem(values["secret"])):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}.secret: {wrong}")
    if kind is PeerHello and (wrong := _endpoint_problem(values["endpoints"], values["engines"])):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}.endpoints: {wrong}")
    if kind is Abort and (wrong := _aborted_problem(values["aborted"])):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}.aborted: {wrong}")
    if kind is Leaving and (wrong := _begun_problem(values["begun"])):
        raise MalformedPeerMessage("bad_field", f"{kind.__name__}.begun: {wrong}")
    return kind(*with_rows(ordered, spec))


def _secret_problem(secret: str) -> str:
    return "" if re.fullmatch("[0-9a-f]{32,64}", secret) else "needs 32 to 64 hexadecimal digits"


def _aborted_problem(aborted: list[AbortedRow]) -> str:
    if not aborted:
        return "names no operation"
    for stream, operation, text, lost in aborted:
        if not (0 <= stream < 1 << 16 and 1 <= operation <= MAX_OPERATION):
            return f"operation {operation} of stream {stream}"
        if not -1 <= lost < MAX_WORLD:
            return f"rank {lost}"
        if len(text) > MAX_ABORT_TEXT:
            return f"a text of {len(text)} characters, at most {MAX_ABORT_TEXT}"
    return ""


def _begun_problem(begun: list[Begun]) -> str:
    for stream, operation in begun:
        if not (0 <= stream < 1 << 16 and 1 <= operation <= MAX_OPERATION):
            return f"operation {operation} of stream {stream}"
    return ""


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
