"""Network namespaces of fabrics: their requirements, names, owners and removal.

A namespace is `dlcpd-OWNER-NODE`. The node is a host, a leaf, a spine, or `c0` for the cables. The
owner is `PID-NUMBER`, a process that removes it at its end (after a crash `cleanup` does), or
`lab-NAME`, which stays until `dlcpctl lab down`.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.plan import FabricError

TOOLS: Final = ("ip", "tc", "nft", "ethtool")
CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # bits, linux/capability.h
FOLDER: Final = Path("/run/netns")  # where ip-netns(8) keeps the names

_NAMESPACE: Final = re.compile(r"(dlcpd-(?:(\d+)-\d+|lab-[a-z0-9]+))-[chls]\d+")
_numbers: Final = itertools.count()


def unavailable() -> str:
    """The reason why this host cannot make a fabric, or an empty string."""
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    if absent:
        return f"this host lacks {', '.join(absent)}; install iproute2, nftables and ethtool"
    held = int(_own_status("CapEff"), 16)
    lacking = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    return f"this process lacks {' and '.join(lacking)}; run it as root" if lacking else ""


def check_available() -> None:
    """Raises: FabricError if this host cannot make a fabric."""
    if reason := unavailable():
        raise FabricError(f"this host cannot create the emulated fabric: {reason}")


def own_name() -> str:
    """A new name of a fabric of this process."""
    return f"dlcpd-{os.getpid()}-{next(_numbers)}"


def namespaces(fabric: str = "") -> list[str]:
    """Namespaces of one fabric, or of all."""
    try:
        names = sorted(os.listdir(FOLDER))
    except FileNotFoundError:  # no namespace was ever made
        return []
    found = [(name, _NAMESPACE.fullmatch(name)) for name in names]
    return [name for name, match in found if match and fabric in {"", match[1]}]


def cleanup() -> list[str]:
    """Remove the namespaces of dead processes; returns their names."""
    left = [name for name in namespaces() if _owner_died(name)]
    remove(left)
    return left


def owners() -> list[int]:
    """Ids of the processes that own a fabric."""
    found = (_NAMESPACE.fullmatch(name) for name in namespaces())
    return sorted({int(match[2]) for match in found if match and match[2]})


def owner(fabric: str) -> int:
    """Id of the process that owns a fabric; 0 for a lab, which outlives its maker."""
    found = _NAMESPACE.fullmatch(f"{fabric}-h0")
    return int(found[2]) if found and found[2] else 0


def remove(names: Sequence[str]) -> None:
    """Kill the processes in these namespaces and remove them. Missing ones are no error."""
    # A process that survives would keep the links of the unnamed namespace alive.
    for pid in inhabitants(names):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    lines = "".join(f"netns delete {name}\n" for name in names)
    subprocess.run(
        ("ip", "-force", "-batch", "-"), input=lines, text=True, capture_output=True, check=False
    )


def inhabitants(names: Iterable[str]) -> list[int]:
    """Ids of the processes whose network namespace is one of these."""
    inodes = set(_inodes(FOLDER / name for name in names))
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and inodes.intersection(_inodes([entry / "ns" / "net"]))
    ]


def inside(namespace: str, *argv: str) -> tuple[str, ...]:
    """The command line that runs `argv` in a namespace."""
    return ("ip", "netns", "exec", namespace, *argv)


def command(*argv: str, stdin: str = "") -> str:
    """Standard output of a command. Raises: FabricError with its standard error."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = done.stderr.strip() or f"exit status {done.returncode}"
        raise FabricError(f"{' '.join(argv)}: {complaint}")
    return done.stdout


def _own_status(key: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)[key]


def _owner_died(namespace: str) -> bool:
    found = _NAMESPACE.fullmatch(namespace)
    return found is not None and found[2] is not None and not Path("/proc", found[2]).exists()


def _inodes(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        try:
            yield path.stat().st_ino
        except OSError:  # ended, or removed, meanwhile
            continue
