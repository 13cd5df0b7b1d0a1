"""Datagrams between `dlcpctl doctor --peer` and `--listen`: a probe, and its answer.

They are no part of the daemon's protocol. An answer is never longer than its probe, so a forged
source gains no amplification, and a listener answers only to a token that it gave over TCP.
"""

import struct
from typing import Final, NamedTuple

_MAGIC: Final = b"DLDR"
_PROBE, _ANSWER = 1, 2
_PROBE_FORM: Final = struct.Struct("!4sBBH16sI16x")  # tos, reply size, token, serial
_ANSWER_FORM: Final = struct.Struct("!4sBBH16sIIQ")  # tos, size, token, serial, arrival, wall
LEAST: Final = _PROBE_FORM.size  # bytes of a probe
MOST: Final = 9000 - 28  # bytes of UDP payload that fit jumbo frames
TOKEN: Final = 16  # bytes

assert _ANSWER_FORM.size <= LEAST  # noqa: S101  # see above


class Probe(NamedTuple):
    """`size` bytes of UDP payload, sent with `tos`; the answer has `reply_size`, if not less."""

    token: bytes
    serial: int
    tos: int = 0
    size: int = LEAST
    reply_size: int = 0

    def pack(self) -> bytes:
        head = _PROBE_FORM.pack(
            _MAGIC, _PROBE, self.tos, self.reply_size, self.token, self.serial & 0xFFFFFFFF
        )
        return head.ljust(self.size, b"\0")


class ProbeAnswer(NamedTuple):
    """How a probe arrived: its TOS byte, its size, and its number in the sender's order of
    arrival."""

    token: bytes
    serial: int
    tos: int
    size: int
    arrival: int
    wall: int  # microseconds since the epoch, by the peer's clock

    def pack(self, size: int) -> bytes:
        head = _ANSWER_FORM.pack(
            _MAGIC, _ANSWER, self.tos, self.size, self.token, self.serial, self.arrival, self.wall
        )
        return head.ljust(size, b"\0")


def probe_untrusted(data: bytes) -> Probe | None:
    """The probe in `data`; None if it is malformed."""
    if len(data) < LEAST:
        return None
    magic, kind, tos, reply, token, serial = _PROBE_FORM.unpack_from(data)
    if (magic, kind) != (_MAGIC, _PROBE):
        return None
    return Probe(token, serial, tos, len(data), min(reply, len(data)))


def answer_untrusted(data: bytes) -> ProbeAnswer | None:
    """The answer in `data`; None if it is malformed."""
    if len(data) < _ANSWER_FORM.size:
        return None
    magic, kind, tos, size, token, serial, arrival, wall = _ANSWER_FORM.unpack_from(data)
    if (magic, kind) != (_MAGIC, _ANSWER):
        return None
    return ProbeAnswer(token, serial, tos, size, arrival, wall)
