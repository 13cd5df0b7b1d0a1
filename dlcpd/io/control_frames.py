"""Frames of commands and events: one SOCK_SEQPACKET socketpair between control and each engine.

A frame is the msgpack of `[kind, fields]`. Both ends are this package at one version, so frames
are trusted: few bounds here, unlike dlcpd.contract.messages.
"""

from typing import Any, Final, get_args

from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder

from dlcpd.contract.forms import plain
from dlcpd.io.commands import Command
from dlcpd.io.control_events import Event

MAX_COMMAND = 192 * 1024  # bytes; SEQPACKET frames stay under the default socket buffer

_FIELDS: Final[dict[str, Decoder[Any]]] = {
    kind.__name__: Decoder(kind) for kind in (*get_args(Command), *get_args(Event))
}
_FRAME: Final = Decoder(tuple[str, Raw])
_encode: Final = Encoder(enc_hook=plain).encode


def pack(message: Command | Event) -> bytes:
    """One frame."""
    return _encode((type(message).__name__, message))


def unpack(frame: bytes) -> Command | Event:
    """Inverse of `pack`."""
    name, fields = _FRAME.decode(frame)
    message: Command | Event = _FIELDS[name].decode(fields)
    return message
