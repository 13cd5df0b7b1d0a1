"""Connection tracking: an entry of the kernel for each pair of ports, work for each datagram."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.doctor.rows import Row, good, warn

SETTINGS: Final = Path("/proc/sys/net/netfilter")
ENTRIES: Final = Path("/proc/net/nf_conntrack")  # root may read it, where the kernel has it
FULL: Final = 0.8  # of the limit; beyond it the kernel soon drops new flows
EXCLUDE: Final = "exclude the data ports (nft, notrack): deploy/nftables/dlcpd.nft"


@dataclass(frozen=True, slots=True)
class Tracking:
    """Of this network namespace. `ours`: entries for data ports; None: they cannot be read."""

    entries: int
    limit: int
    ours: int | None


def look_at_tracking(
    ports: Collection[int], settings: Path = SETTINGS, entries: Path = ENTRIES
) -> Tracking | None:
    """None: this kernel tracks no connections. Raises: OSError."""
    try:
        count = int((settings / "nf_conntrack_count").read_text("ascii"))
        limit = int((settings / "nf_conntrack_max").read_text("ascii"))
    except FileNotFoundError:
        return None
    wanted = {f"dport={port}" for port in ports}
    try:
        with entries.open(encoding="ascii", errors="replace") as lines:
            ours = sum(
                "udp" in (words := line.split()) and bool(wanted & {*words}) for line in lines
            )
    except (FileNotFoundError, PermissionError):
        ours = None
    return Tracking(count, limit, ours)


def judge_tracking(found: Tracking | None) -> Row:
    """Every source port of every peer is an entry, and many firewalls limit their number."""
    check = "connection tracking"
    if found is None:
        return good(check, "the kernel tracks none")
    said = f"{found.entries} of at most {found.limit} entries"
    if found.ours:
        return warn(
            check, f"{said}, {found.ours} of them for data ports: each datagram costs", EXCLUDE
        )
    if found.entries >= FULL * found.limit:
        return warn(
            check,
            f"{said}: the kernel drops datagrams of new flows when it has no room",
            f"{EXCLUDE}; or raise net.netfilter.nf_conntrack_max",
        )
    return good(check, said if found.ours is None else f"{said}, none for data ports")
