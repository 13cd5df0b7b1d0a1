"""Sends and receives messages as packets of a SOCK_SEQPACKET UNIX socket, with descriptors.

A packet is one message, and is never split: there is no partial state to keep.
Plain socket calls: the streams of asyncio and uvloop support neither SEQPACKET nor descriptors.
"""

import array
import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.limits import MAX_ENGINES
from dlcpd.contract.messages import MAX_FRAME, Message

MAX_DESCRIPTORS: Final = 1 + MAX_ENGINES  # arena and lanes: no message has more
FULL_QUEUE_LOOKS: Final = (0.001, 0.05)  # seconds between tries to connect: at first, and at most
_ANCILLARY: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_NOW: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)  # int: enums are slow to combine


def connect(sock: socket.socket, path: str, timeout: float) -> None:
    """Connect within `timeout` seconds, which is the socket's timeout from now on.

    A socket with a timeout gets EAGAIN at once if the listener's queue is full; the call retries.
    Raises: OSError.
    """
    sock.settimeout(timeout)
    over, (pause, longest) = time.monotonic() + timeout, FULL_QUEUE_LOOKS
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            left = over - time.monotonic()
            if left <= 0:
                raise
        else:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, longest)


def send_now(sock: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> bool:
    """Send one packet without waiting. False: the buffer is full and nothing was sent.

    Raises: OSError when the other end is gone or the packet is too large.
    """
    try:
        if descriptors:
            rights = array.array("i", descriptors)
            sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], _NOW)
        else:
            sock.send(data, _NOW)
    except BlockingIOError:
        return False
    return True


def receive_now(sock: socket.socket, limit: int = MAX_FRAME) -> bytes | None:
    """The next packet; None when there is none yet, empty when the other end is gone.

    A longer packet is cut to `limit` + 1 bytes, which shows that it was too long.
    The kernel closes descriptors sent with it: none are requested.
    """
    try:
        return sock.recv(limit + 1, _NOW)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


def receive(sock: socket.socket, limit: int = MAX_FRAME) -> tuple[bytes, list[int]]:
    """The next packet with up to MAX_DESCRIPTORS descriptors, which the caller closes.

    Waits for the socket's timeout at most. Empty when the other end is gone.
    Raises: TimeoutError; BlockingIOError from a socket that does not block.
    """
    try:
        data, ancillary, _, _ = sock.recvmsg(limit + 1, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    rights = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return data, list(rights)


def receive_message(sock: socket.socket) -> tuple[Message | None, list[int]]:
    """Like `receive`, decoded; None when the other end is gone.

    Raises: as `receive`; BadMessage, descriptors are then closed.
    """
    data, descriptors = receive(sock)
    if not data:
        close_all(descriptors)
        return None, []
    try:
        return decode_untrusted(data), descriptors
    except BadMessage:
        close_all(descriptors)
        raise


def close_all(descriptors: Iterable[int]) -> None:
    """Close each. Linux closes a descriptor even if close reports an error."""
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
