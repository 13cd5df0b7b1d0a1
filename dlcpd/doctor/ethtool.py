"""Offloads of a network device, from the ethtool ioctl; needs no root."""

import array
import fcntl
import socket
import struct
from typing import Final

_SIOCETHTOOL: Final = 0x8946  # linux/sockios.h
_GET_STRINGS, _GET_SIZES, _GET_FEATURES = 0x1B, 0x37, 0x3A  # linux/ethtool.h
_FEATURES: Final = 4  # ETH_SS_FEATURES, a set of names
_NAME: Final = 32  # bytes, ETH_GSTRING_LEN
_BLOCK: Final = 16  # bytes of 32 features: available, requested, active, never changed
_MOST: Final = 1024  # features; Linux 6 has about 64


def features(device: str) -> dict[str, bool]:
    """Whether each feature is active, by the kernel's name for it. Raises: OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sizes = _ask(sock, device, struct.pack("=IIQI", _GET_SIZES, 0, 1 << _FEATURES, 0))
        count = min(struct.unpack_from("=I", sizes, 16)[0], _MOST)
        names = _ask(
            sock, device, struct.pack("=III", _GET_STRINGS, _FEATURES, count) + bytes(count * _NAME)
        )
        blocks = -(-count // 32)
        states = _ask(
            sock, device, struct.pack("=II", _GET_FEATURES, blocks) + bytes(blocks * _BLOCK)
        )
    return _named(names[12:], states[8:], count)


def _named(names: bytes, states: bytes, count: int) -> dict[str, bool]:
    found = {}
    for number in range(count):
        name = names[number * _NAME : (number + 1) * _NAME].split(b"\0")[0].decode("ascii")
        active = struct.unpack_from("=I", states, number // 32 * _BLOCK + 8)[0]
        found[name] = bool(active >> number % 32 & 1)
    return found


def _ask(sock: socket.socket, device: str, request: bytes) -> bytes:
    """The kernel's answer, which it writes into the request's buffer. Raises: OSError."""
    buffer = array.array("B", request)
    pointer, _ = buffer.buffer_info()
    fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sQ16x", device.encode(), pointer))
    return buffer.tobytes()
