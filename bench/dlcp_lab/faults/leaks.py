"""What the processes of a cluster hold: descriptors, threads, memory, children, folders."""

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
SETTLE: Final = 10.0  # seconds in which what was closed is gone
LOOK: Final = 0.05  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process."""

    pid: int
    descriptors: int
    threads: int
    children: int
    private: int  # resident bytes that are neither files nor shared memory
    shared: int  # bytes of the memfds that it has open


Held = dict[str, Usage]  # by the part that a process plays


def usage(pid: int) -> Usage:
    """From /proc. Raises: OSError for a process that is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    rows = re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE)
    numbers = {key: int(number) for key, number in rows}
    if "RssAnon" not in numbers:
        raise ProcessLookupError(f"process {pid} has ended, and nobody has waited for it yet")
    return Usage(
        pid,
        len(os.listdir(f"/proc/{pid}/fd")),
        numbers["Threads"],
        len(children(pid)),
        numbers["RssAnon"] * 1024,
        shared_memory([pid]),
    )


def links(pid: int) -> str:
    """What the descriptors of a process lead to, sorted."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(f"{entry.name} {os.readlink(entry)}")
    return ", ".join(sorted(found))


def shared_memory(pids: Sequence[int]) -> int:
    """Bytes that the memfds which these processes have open really occupy, each once."""
    found: dict[int, int] = {}
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as the folder's own
                if os.readlink(entry).startswith("/memfd:"):
                    about = entry.stat()
                    found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def children(pid: int) -> list[int]:
    """Process ids of a process's children; none when it is gone."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def held(processes: Iterable[tuple[str, int]]) -> Held:
    """By every process (its part, its id) that lives."""
    found: Held = {}
    for name, pid in processes:
        with contextlib.suppress(OSError):
            found[name] = usage(pid)
    return found


def strays(marks: Sequence[str], known: Collection[int]) -> list[str]:
    """Other processes than `known` that show one of `marks` in their command or environment."""
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
    """Temporary folders that there are, of this process and of daemons and trainers."""
    ours = (f"dlcp-lab-{os.getpid()}-", "dlcpd", "dlcp-client")
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(ours)}


def settled(look: Callable[[], Sequence[str]]) -> list[str]:
    """What `look` still complains of after SETTLE seconds: what was just closed may need some."""
    until = time.monotonic() + SETTLE
    while (found := list(look())) and time.monotonic() < until:
        time.sleep(LOOK)
    return found


def grown(before: Held, after: Held, slack: int) -> Iterator[str]:
    """What processes that have lived since `before` hold more. `slack`: bytes of private memory
    that may have been added."""
    for name, now in after.items():
        was = before.get(name)
        if was is None or was.pid != now.pid:
            continue  # it is a new one
        for what in ("descriptors", "threads", "children", "shared"):
            if getattr(now, what) > getattr(was, what):
                grew = f"{getattr(was, what)} -> {getattr(now, what)}"
                yield f"{name}: {what} {grew}; it has open: {links(now.pid)}"
        if now.private > was.private + slack:
            yield f"{name}: private memory {was.private / MB:.1f} -> {now.private / MB:.1f} MB"
