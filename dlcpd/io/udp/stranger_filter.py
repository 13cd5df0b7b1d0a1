"""A socket filter: the kernel does not queue datagrams that cannot be from any peer.

A classic BPF program on the socket (socket(7), SO_ATTACH_FILTER; it needs no privilege) compares
the version and the top 16 bits of the token, which all tokens of a daemon have in common. So it
does not change when sessions come and go, and one random datagram in 65,536 passes: some 15 per
second of a million. The engine checks the whole token in any case: 48 bits of it differ by peer.
"""

import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from dlcpd.core.wire.header import VERSION
from dlcpd.ipc import kernel_errors

PREFIX_BITS: Final = 16  # of a token
MAX_PREFIXES: Final = 64  # an engine's sessions have one; a jump of BPF spans 255 instructions
SO_ATTACH_FILTER: Final = 26  # asm-generic/socket.h; Python 3.11 has no names for these
SO_DETACH_FILTER: Final = 27
SO_MEMINFO: Final = 55
_DROPS: Final = 8  # index of SK_MEMINFO_DROPS among the nine words of SO_MEMINFO
_UDP_HEADER: Final = 8  # bytes before the payload, where the program begins to count
_VERSION_AT, _PREFIX_AT = _UDP_HEADER, _UDP_HEADER + 14  # the token is little-endian, at 8..15
_LOAD_BYTE, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x28, 0x15, 0x06  # linux/bpf_common.h
_ALL: Final = 0xFFFFFFFF  # bytes kept
_INSTRUCTION: Final = struct.Struct("=HBBI")  # struct sock_filter: code, if true, if false, k


def prefix(token: int) -> int:
    """The part of a token that the filter compares."""
    return token >> 64 - PREFIX_BITS


def program(prefixes: Collection[int]) -> bytes:
    """A program that keeps datagrams of this version whose token begins with one of `prefixes`;
    without prefixes it keeps none. A load beyond the end of a datagram refuses it. More than
    MAX_PREFIXES: all tokens."""
    known = sorted(prefixes)
    keep, refuse = (_RETURN, 0, 0, _ALL), (_RETURN, 0, 0, 0)
    looks = [(_LOAD_BYTE, 0, 0, _VERSION_AT)]
    if not known:
        steps = [refuse]
    elif len(known) > MAX_PREFIXES:
        steps = [*looks, (_JUMP_IF_EQUAL, 0, 1, VERSION), keep, refuse]
    else:
        looks += [(_JUMP_IF_EQUAL, 0, len(known) + 1, VERSION), (_LOAD_HALF, 0, 0, _PREFIX_AT)]
        found = [
            (_JUMP_IF_EQUAL, len(known) - at, 0, _swapped(each)) for at, each in enumerate(known)
        ]
        steps = [*looks, *found, refuse, keep]
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)


def _swapped(value: int) -> int:
    """The value as a big-endian load sees it."""
    return (value & 0xFF) << 8 | value >> 8


def attach(sock: socket.socket, prefixes: Collection[int]) -> None:
    """Replace the socket's filter, in one step. Raises: OSError."""
    code = ctypes.create_string_buffer(program(prefixes))
    count = (len(code) - 1) // _INSTRUCTION.size
    described = struct.pack("HP", count, ctypes.addressof(code))  # struct sock_fprog
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def detach(sock: socket.socket) -> None:
    """Remove the filter. Raises: OSError, where the filter stays."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    except FileNotFoundError:  # there is none
        return


def dropped(sock: socket.socket) -> int:
    """Messages that the kernel has not queued, in total: refused by the filter, or without room in
    the receive buffer. One that GRO has joined counts once. It wraps at 2^32; 0 if it is not
    known."""
    try:
        words = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 4 * (_DROPS + 1))
    except OSError:  # a kernel before 4.12
        return 0
    return int.from_bytes(words[4 * _DROPS :], "little")


class StrangerFilter:
    """The filter of one socket."""

    def __init__(self, sock: socket.socket, counters: Counter[str]) -> None:
        """`counters` counts failed calls."""
        self._socket, self._counters = sock, counters
        self._prefixes: frozenset[int] | None = None  # that the filter passes; None: all

    def admit(self, tokens: Iterable[int]) -> bool:
        """From now on the kernel queues only datagrams that may have one of these tokens; all, if
        it has no memory for a filter: the receive loop refuses the same, at a higher cost. False:
        the former filter stays."""
        prefixes = frozenset(map(prefix, tokens))
        if prefixes == self._prefixes:
            return True
        try:
            attach(self._socket, prefixes)
        except OSError as exc:
            kernel_errors.count(self._counters, "filter", exc)
            return self._admit_all()
        self._prefixes = prefixes
        return True

    def _admit_all(self) -> bool:
        try:
            detach(self._socket)
        except OSError as exc:
            kernel_errors.count(self._counters, "filter", exc)
            return False
        self._prefixes = None
        return True

    @property
    def dropped(self) -> int:
        """See `dropped`."""
        return dropped(self._socket)
