"""Resources of the host for the daemon: CPUs, memory, descriptors; and its clock."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.cli.ranges import ranges
from dlcpd.doctor import cgroup
from dlcpd.doctor.rows import Row, fail, good, warn

ENOUGH_DESCRIPTORS: Final = 4096  # 256 ranks take three each, and peers may have 1/4 of all
ENOUGH_MEMORY: Final = 1 << 30  # bytes; an arena holds registered tensors and some scratch chunks
CLOCKSOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
SLOW_CLOCKS: Final = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")  # microseconds a read


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs, and the engines that need them."""

    allowed: frozenset[int]  # by affinity
    quota: float | None  # by control group, as a number of CPUs
    engines: int
    pinned: tuple[tuple[int, ...], ...]  # CPUs of each engine; () = any


def look_at_cpus(engines: int, pinned: tuple[tuple[int, ...], ...]) -> Cpus:
    """CPUs that this process may use."""
    return Cpus(frozenset(os.sched_getaffinity(0)), cgroup.cpu_quota(), engines, pinned)


def judge_cpus(found: Cpus) -> Row:
    """While gradients are exchanged, every engine and the trainer are always busy."""
    check, wanted = "CPUs", {number for cpus in found.pinned for number in cpus}
    if missing := wanted - found.allowed:
        return fail(
            check,
            f"engine_cpus names CPU {ranges(missing)}, and this process may use "
            f"CPU {ranges(found.allowed)}",
            "give [network] engine_cpus only CPUs that exist and that the affinity (taskset, "
            "cpuset, AllowedCPUs=) allows",
        )
    count = len(found.allowed)
    quota = (
        ""
        if found.quota is None
        else f", limited to the time of {found.quota:g} by the control group"
    )
    budget = count if found.quota is None else min(count, found.quota)
    engines = f"{found.engines} engine{'s' if found.engines > 1 else ''}"
    said = f"{count} CPU{'s' if count > 1 else ''}{quota}, for {engines} and a trainer"
    if budget < found.engines + 1:
        return warn(
            check,
            f"{said}: they share CPUs",
            "fewer [network] engines, or more CPUs (cpu.max, CPUQuota=, a pod's CPU limit)",
        )
    return good(check, said)


def look_at_descriptors() -> int:
    """The hard limit, to which the daemon raises its own; -1: none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def judge_descriptors(hard: int) -> Row:
    """A daemon raises its soft limit itself."""
    check = "open files"
    if hard == resource.RLIM_INFINITY or hard >= ENOUGH_DESCRIPTORS:
        shown = "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}"
        return good(check, f"{shown} (ulimit -Hn); each peer takes three")
    return warn(
        check,
        f"at most {hard} (ulimit -Hn): each peer takes three, and all peers together may use a "
        "quarter",
        f"LimitNOFILE={ENOUGH_DESCRIPTORS * 16} in the unit, or `nofile` in "
        f"/etc/security/limits.conf",
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that arenas may have; None: no limit, or not known."""

    available: int | None  # of the host
    group: int | None  # left by the control group


def look_at_memory(meminfo: Path = Path("/proc/meminfo")) -> Memory:
    """Memory of the host, and of this process's control group."""
    return Memory(_available(meminfo), cgroup.memory_left())


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(values[0]) * 1024 if values else None


def judge_memory(found: Memory) -> Row:
    """A page of an arena is charged to the process that touches it first: mostly the trainer."""
    check = "memory"
    rests = [rest for rest in (found.available, found.group) if rest is not None]
    if not rests:
        return good(check, "no readable limit")
    least = min(rests)
    by_group = found.group is not None and least == found.group
    whose = "left by memory.max of the control group" if by_group else "available on the host"
    said = f"{least / (1 << 30):.1f} GiB {whose}"
    if least < ENOUGH_MEMORY:
        return warn(
            check,
            f"{said}: an arena holds all registered tensors",
            "raise memory.max (MemoryMax=, a pod's memory limit)"
            if by_group
            else "free memory, or train a smaller model here",
        )
    return good(check, said)


def look_at_clock() -> str:
    """The kernel's clock source; empty if unknown."""
    try:
        return CLOCKSOURCE.read_text().strip()
    except OSError:
        return ""


def judge_clock(source: str) -> Row:
    """An engine reads the clock at every wake-up and every arrival."""
    check = "clock"
    if source in SLOW_CLOCKS:
        return warn(
            check,
            f"the kernel reads {source}, which takes a microsecond and more each time",
            "see why in `dmesg | grep -i clocksource`; where the TSC is stable boot with "
            "clocksource=tsc tsc=reliable",
        )
    return good(check, f"monotonic, by {source or 'a source that the kernel does not name'}")
