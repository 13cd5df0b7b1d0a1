"""Packets of the IPC messages: one of a SOCK_SEQPACKET socket each. Source: docs/ipc.md.

A packet is the msgpack of `[kind, value, ...]`, values in the order of the fields.
"""

from collections.abc import Callable
from typing import Final, get_args

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.forms import Form, plain
from dlcpd.contract.messages import MAX_FRAME, VERSION, Message

# By kind. A kind's number is the `tag` of its class.
FORMS: Final = {kind: Form(kind) for kind in get_args(Message)}
_WITH_TEXTS: Final = {kind: form for kind, form in FORMS.items() if form.has_texts}
_BY_NUMBER: Final = {kind.__struct_config__.tag: form for kind, form in FORMS.items()}


class _Head(Struct, array_like=True):
    """The kind of any message."""

    kind: int


_HEADS: Final = Decoder(_Head)
_MESSAGES: Final[Decoder[Message]] = Decoder(Message)
_values: Final = Encoder(enc_hook=plain)
encode: Final[Callable[[Message], bytes]] = Encoder(
    enc_hook=plain
).encode  # the packet of a message


def encode_for(version: int, message: Message) -> bytes:
    """The packet of a message for a client of this version: an older one may not know fields at the
    end, so there those with their default are left out."""
    if version == VERSION:
        return encode(message)
    kind = type(message)
    values = [getattr(message, name) for name in kind.__struct_fields__]
    defaults = list(kind.__struct_defaults__)
    while defaults and values[-1] == defaults[-1]:
        del values[-1], defaults[-1]
    return _values.encode([kind.__struct_config__.tag, *values])


def encode_checked(message: Message) -> bytes:
    """The packet of a message that has values of a caller: the other end would end the session of a
    client that breaks the rules.

    Raises: BadMessage, as the other end would.
    """
    try:
        packet = encode(message)
    except (TypeError, ValueError, OverflowError) as exc:  # a value that msgpack has not
        raise BadMessage(f"{type(message).__name__}: {exc}") from exc
    decode_untrusted(packet)
    return packet


def decode_untrusted(data: bytes | memoryview) -> Message:
    """The message in a packet.

    Raises: BadMessage naming the message and field, and nothing else, for any bytes.
    """
    if len(data) > MAX_FRAME:
        raise BadMessage(f"a frame has at most {MAX_FRAME} B")
    try:
        message = _MESSAGES.decode(data)
    except ValidationError as exc:
        raise BadMessage(_problem(data, exc)) from exc
    except (DecodeError, UnicodeDecodeError) as exc:
        raise BadMessage(f"{len(data)} B are no msgpack value: {type(exc).__name__}") from exc
    form = _WITH_TEXTS.get(type(message))
    if form is not None:
        form.clean(message)
    return message


def _problem(data: bytes | memoryview, error: ValidationError) -> str:
    try:
        return _BY_NUMBER[_HEADS.decode(data).kind].problem(error)
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return f"a frame is [kind, value, ...], its kind an integer 0..{len(FORMS) - 1}"
