"""IPC messages as packets of a blocking SOCK_SEQPACKET socket, with the descriptors beside them."""

import array
import os
import socket
from typing import Final

import msgpack

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.messages import MAX_FRAME, Message, from_frame_untrusted, to_frame

MAX_DESCRIPTORS: Final = 2  # arena and lane; more in one packet is no message of ours
_ANCILLARY: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)


def encode(message: Message) -> bytes:
    """The packet of a message."""
    packed: bytes = msgpack.packb(to_frame(message))
    return packed


def decode(data: bytes | memoryview) -> Message:
    """The message in a packet.

    Raises: BadMessage, and nothing else, for any bytes.
    """
    if len(data) > MAX_FRAME:
        raise BadMessage(f"a frame has at most {MAX_FRAME} B")
    try:
        frame = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as exc:  # both roots of msgpack's own errors
        raise BadMessage(f"{len(data)} B are no msgpack value: {type(exc).__name__}") from exc
    return from_frame_untrusted(frame)


def receive(sock: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors, which the caller closes; None when the end came.

    Raises: TimeoutError after the socket's timeout; BadMessage, descriptors are then closed.
    """
    try:
        data, ancillary, _, _ = sock.recvmsg(MAX_FRAME + 1, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None, []
    descriptors = _descriptors(ancillary)
    if not data:
        close_all(descriptors)
        return None, []
    try:
        return decode(data), descriptors
    except BadMessage:
        close_all(descriptors)
        raise


def close_all(descriptors: list[int]) -> None:
    """Close each."""
    for descriptor in descriptors:
        os.close(descriptor)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    rights = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return list(rights)
