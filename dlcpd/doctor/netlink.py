"""Addresses of interfaces, from the kernel (rtnetlink(7)). Needs no root."""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ADDRESS: Final = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix, flags, scope, index
_ATTRIBUTE: Final = struct.Struct("=HH")  # rtattr: length, type
_ERROR, _DONE, _NEW_ADDRESS, _GET_ADDRESS = 2, 3, 20, 22  # linux/netlink.h, linux/rtnetlink.h
_REQUEST_ALL: Final = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_IFA_ADDRESS, _IFA_LOCAL = 1, 2  # linux/if_addr.h
_LINK: Final = 253  # scope of an address that only neighbours reach (linux/rtnetlink.h)
_PATIENCE: Final = 2.0  # seconds; the kernel answers at once
_MOST: Final = 1 << 16  # bytes of a read; the kernel sends 8 to 32 KiB


def addresses() -> dict[str, str]:
    """Interface by address, without link-local ones. Raises: OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_PATIENCE)
        body = _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        size = _HEADER.size + len(body)
        sock.sendto(_HEADER.pack(size, _GET_ADDRESS, _REQUEST_ALL, 1, 0) + body, (0, 0))
        found = dict(_answers(sock))
    names = dict(socket.if_nameindex())
    return {address: names[index] for address, index in found.items() if index in names}


def _answers(sock: socket.socket) -> Iterator[tuple[str, int]]:
    while True:
        data = sock.recv(_MOST)
        while len(data) >= _HEADER.size:
            size, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR or size < _HEADER.size:
                raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
            if kind == _NEW_ADDRESS:
                yield from _address(data[_HEADER.size : size])
            data = data[_aligned(size) :]


def _address(body: bytes) -> Iterator[tuple[str, int]]:
    family, _, _, scope, index = _ADDRESS.unpack_from(body)
    if family not in (socket.AF_INET, socket.AF_INET6) or scope == _LINK:
        return
    attributes = dict(_attributes(body[_ADDRESS.size :]))
    # On a point-to-point link IFA_ADDRESS is the other end's.
    value = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
    if value:
        yield socket.inet_ntop(family, value), index


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            return
        yield kind, data[_ATTRIBUTE.size : size]
        data = data[_aligned(size) :]


def _aligned(size: int) -> int:
    return (size + 3) & ~3
