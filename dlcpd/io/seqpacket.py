"""Packets of a non-blocking SOCK_SEQPACKET UNIX socket, and the descriptors beside them.

Plain sendmsg and recvmsg: neither asyncio's nor uvloop's streams know SEQPACKET or
descriptors. A packet goes or comes whole, so there is no partial state to keep.
"""

import array
import socket
from collections.abc import Iterable
from typing import Any, Final

import msgpack

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import MAX_FRAME, Message, from_frame_untrusted, to_frame

MAX_DESCRIPTORS: Final = 2  # arena and lane; more in one packet is no message of ours
_ANCILLARY: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


def encode(message: Message) -> bytes:
    """The packet of an IPC message."""
    packed: bytes = msgpack.packb(to_frame(message))
    return packed


def unpack_untrusted(data: bytes) -> Any:
    """The msgpack value in `data`.

    Raises: BadMessage, and nothing else, for any bytes.
    """
    try:
        return msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as exc:  # both roots of msgpack's own errors
        raise BadMessage(f"{len(data)} B are no msgpack value: {type(exc).__name__}") from exc


def decode_untrusted(data: bytes) -> Message:
    """The IPC message in a packet.

    Raises: BadMessage, and nothing else, for any bytes.
    """
    if len(data) > MAX_FRAME:
        raise BadMessage(f"a frame has at most {MAX_FRAME} B")
    return from_frame_untrusted(unpack_untrusted(data))


def send_packet(sock: socket.socket, data: bytes, descriptors: Iterable[int] = ()) -> bool:
    """Send one packet now. False: the buffer is full and nothing was sent.

    Raises: OSError when the other end is gone or the packet is too large.
    """
    rights = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
    try:
        sock.sendmsg([data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except BlockingIOError:
        return False
    return True


def receive_packet(sock: socket.socket, limit: int = MAX_FRAME) -> bytes | None:
    """The next packet; None when there is none yet, empty when the other end is gone.

    A longer packet comes back cut to `limit` + 1 bytes, so its length tells.
    Descriptors beside it are closed by the kernel: none are asked for.
    """
    try:
        return sock.recvmsg(limit + 1, 0, socket.MSG_DONTWAIT)[0]
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


def receive_with_descriptors(
    sock: socket.socket, limit: int = MAX_FRAME
) -> tuple[bytes | None, list[int]]:
    """Like `receive_packet`, with up to MAX_DESCRIPTORS descriptors; the caller closes them."""
    rights = array.array("i")
    flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    try:
        data, ancillary, _, _ = sock.recvmsg(limit + 1, _ANCILLARY, flags)
    except BlockingIOError:
        return None, []
    except ConnectionError:
        return b"", []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return data, list(rights)
