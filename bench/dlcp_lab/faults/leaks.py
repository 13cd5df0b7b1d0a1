"""Detects leaks of a cluster's processes: descriptors, threads, memory, children, folders."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MB: Final = 1_000_000
SETTLE: Final = 10.0  # seconds in which closed resources disappear
LOOK: Final = 0.05  # seconds between two looks


@dataclass(frozen=True, slots=True)
class ProcessResources:
    """Resources of one process."""

    pid: int
    descriptors: int
    threads: int
    children: int
    private: int  # resident bytes that are neither files nor shared memory
    shared: int  # bytes of its open memfds


Held = dict[str, ProcessResources]  # by the part of the process, such as "host0 engine"


def usage(pid: int) -> ProcessResources:
    """Resources from /proc. Raises: OSError for a process that has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    rows = re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE)
    numbers = {key: int(number) for key, number in rows}
    if "RssAnon" not in numbers:
        raise ProcessLookupError(
            f"process {pid} has ended, and its parent has not yet waited for it"
        )
    return ProcessResources(
        pid,
        len(os.listdir(f"/proc/{pid}/fd")),
        numbers["Threads"],
        len(children(pid)),
        numbers["RssAnon"] * 1024,
        shared_memory([pid]),
    )


def links(pid: int) -> str:
    """The open descriptors of a process and their targets, sorted."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(f"{entry.name} {os.readlink(entry)}")
    return ", ".join(sorted(found))


def shared_memory(pids: Sequence[int]) -> int:
    """Bytes allocated to the open memfds of these processes, each memfd once."""
    found: dict[int, int] = {}
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(entry).startswith("/memfd:"):
                    about = entry.stat()
                    found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def children(pid: int) -> list[int]:
    """Process ids of a process's children; none if it has ended."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def held(processes: Iterable[tuple[str, int]]) -> Held:
    """Resources of every live process of (part, process id)."""
    found: Held = {}
    for name, pid in processes:
        with contextlib.suppress(OSError):
            found[name] = usage(pid)
    return found


def strays(marks: Sequence[str], known: Collection[int]) -> list[str]:
    """Processes not in `known` that have one of `marks` in their command or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if (pid := int(entry.name)) in known:
                continue
            command = (entry / "cmdline").read_text(errors="replace")
            said = command + (entry / "environ").read_text(errors="replace")
            if any(mark in said for mark in marks) and command:  # a zombie has none
                found.append(f"process {pid}: {command.replace(chr(0), ' ')[:120]}")
    return found


def folders() -> set[str]:
    """Temporary folders of this process, daemons and trainers."""
    prefixes = (f"dlcp-lab-{os.getpid()}-", "dlcpd", "dlcp-client")
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(prefixes)}


def settled(look: Callable[[], Sequence[str]]) -> list[str]:
    """Problems that `look` still finds after SETTLE seconds: closed resources may need some."""
    until = time.monotonic() + SETTLE
    while (found := list(look())) and time.monotonic() < until:
        time.sleep(LOOK)
    return found


def grown(before: Held, after: Held, slack: int) -> Iterator[str]:
    """Growth of the processes that have lived since `before`. `slack`: bytes by which private
    memory may grow."""
    for name, now in after.items():
        was = before.get(name)
        if was is None or was.pid != now.pid:
            continue  # a new process
        for what in ("descriptors", "threads", "children", "shared"):
            if getattr(now, what) > getattr(was, what):
                grew = f"{getattr(was, what)} -> {getattr(now, what)}"
                yield f"{name}: {what} {grew}; it has open: {links(now.pid)}"
        if now.private > was.private + slack:
            yield f"{name}: private memory {was.private / MB:.1f} -> {now.private / MB:.1f} MB"
