"""Checks of the kernel: UDP GSO and GRO, socket buffers, sealed and huge shared memory."""

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import ArenaFull
from dlcpd.doctor.rows import Row, good, warn
from dlcpd.doctor.rows import fail as failed
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.sockets import size_buffers

PIECE: Final = 1000  # bytes of each datagram of the test burst
PIECES: Final = 4
PATIENCE: Final = 1.0  # seconds for a datagram over loopback
RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")
SHMEM_HUGE: Final = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
UNUSED_HUGE: Final = ("never", "deny")  # values for which MADV_HUGEPAGE has no effect


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How a burst passed over loopback."""

    gso: bool  # one call sent several datagrams
    gro: bool  # one call received several


def look_at_segmentation() -> Segmentation:
    """Send one burst to another socket of this process, and receive it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(PATIENCE)
        joins = _set(receiver, mmsg.UDP_GRO, 1)
        size = struct.pack("@H", PIECE)
        option = [(socket.IPPROTO_UDP, mmsg.UDP_SEGMENT, size)]
        try:
            sender.sendmsg([bytes(PIECE * PIECES)], option, 0, receiver.getsockname())
            first = receiver.recv(1 << 16)
        except OSError:  # TimeoutError is one
            return Segmentation(gso=False, gro=joins)
        if len(first) == PIECE * PIECES:  # the whole burst: GRO joined it, or nothing split it
            return Segmentation(gso=joins, gro=joins)
        return Segmentation(gso=len(first) == PIECE, gro=False)


def _set(sock: socket.socket, option: int, value: int) -> bool:
    try:
        sock.setsockopt(socket.IPPROTO_UDP, option, value)
    except OSError:
        return False
    return True


def judge_segmentation(found: Segmentation, *, offload: bool, release: str) -> Row:
    """`offload`: of [network]; `release`: of the kernel."""
    check = "UDP GSO and GRO"
    if not offload:
        return good(check, "not used: [network] offload is false")
    missing = [name for name, there in (("GSO", found.gso), ("GRO", found.gro)) if not there]
    if not missing:
        return good(check, f"a burst of {PIECES} datagrams passed as one, in and out")
    return warn(
        check,
        f"Linux {release} has no {' and no '.join(missing)} for UDP: each datagram is a message "
        f"of its own, at more CPU time",
        "use Linux 5.0 or later (in a container the host's kernel counts)",
    )


@dataclass(frozen=True, slots=True)
class ReceiveBuffer:
    """Sizes of a socket's receive buffer, in bytes."""

    wanted: int
    granted: int
    limit: int  # net.core.rmem_max; 0: not known


def look_at_buffer(wanted: int) -> ReceiveBuffer:
    """Request a receive buffer as an engine of this user would."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        granted = size_buffers(sock, wanted)
    try:
        limit = int(RMEM_MAX.read_text())
    except (OSError, ValueError):  # hidden in a network namespace before Linux 6.x
        limit = 0
    return ReceiveBuffer(wanted, granted, limit)


def judge_buffer(found: ReceiveBuffer) -> Row:
    """A burst that overflows the buffer is lost, as if the network had dropped it."""
    check, limit = "receive buffer", found.limit or "unknown here"
    if found.granted < found.wanted:
        return warn(
            check,
            f"{found.granted} of {found.wanted} bytes granted (net.core.rmem_max is {limit}): "
            f"bursts overflow it while the engine is busy",
            f"sysctl -w net.core.rmem_max={found.wanted} net.core.wmem_max={found.wanted} "
            f"(and in /etc/sysctl.d), or [network] receive_buffer = {found.granted}",
        )
    past = 0 < found.limit < found.wanted
    note = f"; without CAP_NET_ADMIN it would be {limit}, net.core.rmem_max" if past else ""
    return good(check, f"{found.granted} bytes granted{note}")


def look_at_sealing() -> str:
    """Why no arena can be made; empty if one can."""
    try:
        os.close(create_arena(1 << 16))
    except ArenaFull as exc:
        return str(exc)
    return ""


def judge_sealing(problem: str) -> Row:
    """Without sealed memory no session opens."""
    check = "shared memory"
    if not problem:
        return good(check, "a sealed memfd was made; the size of /dev/shm does not matter")
    return failed(
        check,
        problem,
        "allow memfd_create and F_ADD_SEALS (in a container: its seccomp profile), and free memory",
    )


def look_at_huge_pages() -> str:
    """The kernel's setting for shared memory; empty if it has none."""
    try:
        text = SHMEM_HUGE.read_text()
    except OSError:
        return ""
    _, _, rest = text.partition("[")
    return rest.partition("]")[0]


def judge_huge_pages(setting: str) -> Row:
    """Huge pages gained 5 % for tensors in the arena, and nothing for others: no warning."""
    check = "huge pages"
    if not setting or setting in UNUSED_HUGE:
        where = f"echo advise > {SHMEM_HUGE}" if setting else "this kernel has none"
        return good(check, f"not for shared memory ({where}); worth 5 % for tensors in the arena")
    return good(check, f"shared memory may have them ({setting})")
