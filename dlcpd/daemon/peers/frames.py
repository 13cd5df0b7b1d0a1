"""Greeting and frames of ZMTP 3.0 (ZeroMQ RFC 23), cut out of a stream. Pure: no socket, no clock.

Only the arriving frame is stored, and its size is checked before its bytes are read.
"""

from enum import Enum, auto
from typing import Final

from dlcpd.contract.errors import PeerError

GREETING_BYTES: Final = 64
MAX_HANDSHAKE_FRAME: Final = 512  # bytes; the longest, INITIATE, has 257 plus metadata
LENGTH_BYTES: Final = 8  # of a frame with more than SHORT bytes
SHORT: Final = 255
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_VERSION: Final = b"\x03\x00"
_MECHANISM: Final = b"CURVE".ljust(20, b"\0")
_LONG, _COMMAND = 2, 4  # flags of a frame; 1 would be MORE, which CURVE encrypts


class BrokenStream(PeerError):
    """Data of a connection violate the protocol, or fail authentication."""

    code = "broken_stream"


def greeting(*, as_server: bool) -> bytes:
    """The greeting, which either side sends first."""
    start = _SIGNATURE + _VERSION + _MECHANISM + bytes([as_server])
    return start.ljust(GREETING_BYTES, b"\0")


def check_greeting_untrusted(data: bytes) -> None:
    """Raises: BrokenStream when the other side speaks no CURVE."""
    if data[0] != _SIGNATURE[0] or data[9] & 1 == 0 or data[10] < _VERSION[0]:
        raise BrokenStream("no greeting of ZMTP 3")
    if data[12:32] != _MECHANISM:
        raise BrokenStream("no CURVE")


def frame(body: bytes, *, command: bool = False) -> bytes:
    """`body` with its header."""
    flags = _COMMAND if command else 0
    if len(body) <= SHORT:
        return bytes([flags, len(body)]) + body
    return bytes([flags | _LONG]) + len(body).to_bytes(LENGTH_BYTES, "big") + body


class _Piece(Enum):
    """The piece of the stream that arrives now."""

    GREETING = auto()
    HEADER = auto()
    LENGTH = auto()
    BODY = auto()


class FrameReader:
    """Cuts a stream into frames: read at most `wanted` bytes, `feed` them, repeat."""

    def __init__(self) -> None:
        self.limit = MAX_HANDSHAKE_FRAME  # bytes of a frame
        self._piece, self._size = _Piece.GREETING, GREETING_BYTES
        self._data = bytearray()

    @property
    def wanted(self) -> int:
        """Bytes that the present piece lacks, at least 1."""
        return self._size - len(self._data)

    def feed(self, data: bytes) -> bytes | None:
        """The greeting, or the body of a frame, once it is whole.

        Raises: BrokenStream.
        """
        self._data += data
        if self.wanted:
            return None
        piece, whole = self._piece, bytes(self._data)
        self._data.clear()
        if piece is _Piece.HEADER:
            self._header(whole[0], whole[1])
        elif piece is _Piece.LENGTH:
            self._expect_body(int.from_bytes(whole, "big"))
        else:
            self._piece, self._size = _Piece.HEADER, 2
            return whole
        return None

    def _header(self, flags: int, size: int) -> None:
        if flags & ~(_LONG | _COMMAND):
            raise BrokenStream(f"a frame with the flags {flags:#04x}")
        if flags & _LONG:  # `size` is the first of the 8 bytes of the length
            self._data.append(size)
            self._piece, self._size = _Piece.LENGTH, LENGTH_BYTES
        else:
            self._expect_body(size)

    def _expect_body(self, size: int) -> None:
        if not 0 < size <= self.limit:  # no frame of this protocol is empty
            raise BrokenStream(f"a frame of {size} B, at most {self.limit}")
        self._piece, self._size = _Piece.BODY, size
