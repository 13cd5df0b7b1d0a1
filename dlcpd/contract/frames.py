"""Frames of the IPC messages: one packet of a SOCK_SEQPACKET socket each.

A frame is the msgpack of the list `[kind, [value, ...]]` that `to_frame` returns, values in the
order of the fields. This module has values only; io and client own the msgpack call and the
descriptors that are sent with a frame. `from_frame_untrusted` raises BadMessage and nothing else,
for any value. Source: docs/ipc.md.
"""

from typing import Any, Final

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import (
    CloseGroup,
    Completed,
    Failed,
    Hello,
    Join,
    Joined,
    Leave,
    Left,
    Message,
    OpenGroup,
    Refused,
    Released,
    Status,
    StatusRequest,
    Submit,
    Traced,
    TraceRequest,
    Welcome,
)
from dlcpd.contract.schema import Specification, problem_among, with_rows

KINDS: Final[tuple[type[Message], ...]] = (
    Hello, Welcome, Join, Joined, StatusRequest, Status, Refused,
    OpenGroup, CloseGroup, Submit, Completed, Released, Failed, Leave, Left,
    TraceRequest, Traced,
)  # fmt: skip
_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
_FIELDS: Final = {kind: Specification.of(kind) for kind in KINDS}


def to_frame(message: Message) -> list[Any]:
    """The plain value that msgpack packs: [kind, values of its fields in their order]."""
    kind = type(message)
    return [_NUMBER[kind], [getattr(message, name) for name, _ in _FIELDS[kind].fields]]


def from_frame_untrusted(frame: Any) -> Message:
    """The message in an unpacked frame.

    Raises: BadMessage naming the message and field.
    """
    if not isinstance(frame, list) or len(frame) != 2:
        raise BadMessage("a frame is [kind, values]")
    number, values = frame
    if type(number) is not int or not 0 <= number < len(KINDS):
        # Not the value: the repr of a deeply nested list is a RecursionError.
        raise BadMessage(f"a message kind is an integer 0..{len(KINDS) - 1}")
    kind = KINDS[number]
    spec = _FIELDS[kind]
    if type(values) is not list or len(values) != len(spec.fields):
        raise BadMessage(f"{kind.__name__}: needs exactly {', '.join(spec.names)}, as a list")
    if wrong := problem_among(values, spec):
        raise BadMessage(f"{kind.__name__}.{wrong}")
    return kind(*with_rows(values, spec))
