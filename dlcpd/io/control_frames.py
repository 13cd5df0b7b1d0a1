"""Frames of commands and events: one SOCK_SEQPACKET socketpair between control and each engine.

A frame is the msgpack of `[kind, fields]`. Both ends are this package at one version, so frames
are trusted: no bounds here, unlike dlcpd.contract.messages.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

import msgpack

from dlcpd.io.commands import AbortedOperation, Begun, Command, EnginePeer, UdpAddress
from dlcpd.io.control_events import Event, FailedOperation

MAX_COMMAND = 192 * 1024  # bytes; SEQPACKET frames stay under the default socket buffer

_KINDS: dict[str, type[Command | Event]] = {
    kind.__name__: kind for kind in (*get_args(Command), *get_args(Event))
}


def pack(message: Command | Event) -> bytes:
    """One frame."""
    packed: bytes = msgpack.packb([type(message).__name__, asdict(message)])
    return packed


def unpack(frame: bytes) -> Command | Event:
    """Inverse of `pack`."""
    name, values = msgpack.unpackb(frame)
    for field, make in _ROWS.get(name, {}).items():
        values[field] = [make(row) for row in values[field]]
    return _KINDS[name](**values)


def _peer(values: dict[str, Any]) -> EnginePeer:
    ends = [UdpAddress(*pair) for pair in values.pop("endpoints")]
    return EnginePeer(endpoints=ends, **values)


# field -> function that makes one of its rows, for messages that have rows
_ROWS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "OpenSession": {"peers": _peer},
    "EngineReady": {"endpoints": UdpAddress._make},
    "AbortOperations": {"aborted": AbortedOperation._make},
    "PeerLeft": {"begun": Begun._make},
    "SessionLeft": {"begun": Begun._make},
    "OperationsFailed": {"failures": FailedOperation._make},
}
