"""Checks of the interfaces that data would use: choice, MTU, speed and offloads."""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.core.wire.sizes import LEAST_MTU
from dlcpd.doctor import ethtool, netlink
from dlcpd.doctor.rows import Row, fail, good, warn

_GET_FLAGS, _GET_MTU = 0x8913, 0x8921  # linux/sockios.h
_UP: Final = 1  # IFF_UP
JUMBO: Final = 9000
CHECKSUM: Final = ("tx-checksum-ip-generic", "tx-checksum-ipv4")  # either is enough for GSO
GRO: Final = "rx-gro"
IN_HARDWARE: Final = "tx-udp-segmentation"


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of this host, with an address."""

    address: str
    name: str
    up: bool
    mtu: int
    speed: int  # Mbit/s; 0: not known
    features: dict[str, bool]  # of the device, by ethtool's names; empty: unknown

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


def look_at_interfaces() -> list[Interface]:
    """All interfaces that have an address. Raises: OSError."""
    return [_interface(address, name) for address, name in netlink.addresses().items()]


def _interface(address: str, name: str) -> Interface:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = struct.unpack_from("=h", _ioctl(sock, _GET_FLAGS, name))[0]
        mtu = struct.unpack_from("=i", _ioctl(sock, _GET_MTU, name))[0]
    return Interface(address, name, bool(flags & _UP), mtu, _speed(name), _features(name))


def _ioctl(sock: socket.socket, request: int, name: str) -> bytes:
    answer: bytes = fcntl.ioctl(sock, request, struct.pack("16s24x", name.encode()))
    return answer[16:]


def _speed(name: str) -> int:
    try:
        return max(int(Path(f"/sys/class/net/{name}/speed").read_text()), 0)
    except (OSError, ValueError):  # EINVAL: a device without a speed, or without a link
        return 0


def _features(name: str) -> dict[str, bool]:
    try:
        return ethtool.features(name)
    except OSError:
        return {}


def judge_interfaces(
    interfaces: Iterable[Interface], paths: Iterable[str], *, chosen: bool
) -> Iterator[Row]:
    """Rows for each path's address. `chosen`: by the configuration, not by the routing table."""
    known = list(interfaces)
    by_address = {interface.address: interface for interface in known}
    for number, address in enumerate(dict.fromkeys(paths)):
        found = by_address.get(address)
        if found is None:
            yield _absent(number, address, known)
            continue
        yield _place(number, found, known, chosen=chosen)
        yield _mtu(number, found)
        if not found.loopback:
            yield _offloads(number, found)


def _absent(number: int, address: str, known: list[Interface]) -> Row:
    return fail(
        f"interface of path {number}",
        f"no interface has {address}",
        f"set [network] paths to an address of this host: {_offer(known)}",
    )


def _offer(known: list[Interface]) -> str:
    others = [f"{one.address} ({one.name})" for one in known if one.up and not one.loopback]
    return ", ".join(others) or "this host has only loopback"


def _place(number: int, found: Interface, known: list[Interface], *, chosen: bool) -> Row:
    check, here = f"interface of path {number}", f"{found.name}, {found.address}"
    why = "as [network] paths says" if chosen else "the default route leaves there"
    if not found.up:
        return fail(check, f"{here} is down", f"ip link set {found.name} up")
    if found.loopback:
        return warn(
            check,
            f"{here}: {why if chosen else 'there is no default route'}; no other host reaches it",
            f"[network] paths = [{{ address = ... }}] with one of {_offer(known)}; nothing to do "
            "if all ranks are on this host",
        )
    if (faster := _fastest(known)) and 0 < found.speed < faster.speed and not chosen:
        return warn(
            check,
            f"{here}, because {why}; it has {found.speed} Mbit/s and {faster.name} has "
            f"{faster.speed}",
            f'[network] paths = [{{ address = "{faster.address}" }}]',
        )
    speed = f", {found.speed} Mbit/s" if found.speed else ""
    return good(check, f"{here}{speed}: {why}")


def _fastest(known: list[Interface]) -> Interface | None:
    usable = [one for one in known if one.up and not one.loopback]
    return max(usable, key=lambda one: one.speed, default=None)


def _mtu(number: int, found: Interface) -> Row:
    check = f"MTU of path {number}"
    if found.mtu < LEAST_MTU:
        return fail(
            check,
            f"{found.name} has {found.mtu}; segments need {LEAST_MTU}, or are sent in pieces",
            f"ip link set {found.name} mtu 1500",
        )
    more = "" if found.mtu >= JUMBO else f"; {JUMBO} on every host and switch takes a sixth"
    return good(check, f"{found.name} has {found.mtu}{more and more + ' of the datagrams'}")


def _offloads(number: int, found: Interface) -> Row:
    check, active = f"offloads of path {number}", found.features
    if not active:
        return good(check, f"{found.name} does not report the offloads of its device")
    if not any(active.get(name) for name in CHECKSUM):
        return warn(
            check,
            f"{found.name} computes no checksums of outgoing datagrams, so GSO may be refused",
            f"ethtool -K {found.name} tx on",
        )
    if not active.get(GRO, True):
        return warn(
            check,
            f"{found.name} has no GRO: each datagram passes the network stack by itself",
            f"ethtool -K {found.name} gro on",
        )
    where = "the device" if active.get(IN_HARDWARE) else "the kernel, in software"
    return good(check, f"{found.name}: checksums and GRO; bursts are cut by {where}")
