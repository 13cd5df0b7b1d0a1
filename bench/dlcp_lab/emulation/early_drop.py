"""Early drops by drop precedence, exact to the packet, where clang can compile for the kernel.

A classifier counts the bytes in each queue (early_drop.bpf.c). The rules of nft (congestion.py) are
less exact: a full bucket does not know how much longer the queue is, and bursts of protected
packets reach the end of the buffer.
"""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.namespaces import command, own_name, remove, unavailable
from dlcp_lab.emulation.plan import FabricError, Plan, bits_per_second
from dlcp_lab.emulation.queues import GUARANTEED, queue_lines, queues, thresholds
from dlcp_lab.emulation.scratch import scratch_folder
from dlcpd.ipc.scratch import Scratch

SOURCE: Final = Path(__file__).with_name("early_drop.bpf.c")
# The real queue drains in bursts, by timers; a count at the full rate would fall below its length.
DRAIN: Final = 0.98
LONGEST: Final = "1000000000ULL"  # ns without a packet, after which all queues are empty
HEADERS: Final = Path("/usr/include")
MINOR: Final = 0x20  # class of the first queue's early drops; the other queues follow
DSCPS: Final = 64
FIRST: Final = 1  # preference of the filter


@cache
def available() -> bool:
    """Whether this machine can compile the program and its kernel loads it."""
    if unavailable():
        return False
    plan, scratch = Plan(early_drop="bpf"), f"{own_name()}-s0"
    try:
        lines = [*queue_lines(plan, "lo", "1gbit"), *early_drop_lines(plan, "lo", "1gbit")]
        command("ip", "netns", "add", scratch)
        command("tc", "-n", scratch, "-batch", "-", stdin="\n".join(lines))
    except FabricError:
        return False
    finally:
        remove([scratch])
    return True


def drop_class(number: int) -> str:
    """Class for a queue's early drops: its buffer holds no packet, so tc counts them as drops."""
    return f"1:{MINOR + number:x}"


def early_drop_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Lines for `tc -batch`: early drops of a device that has its queues."""
    for number in range(len(queues(plan))):
        here = drop_class(number)
        yield f"class add dev {device} parent 1: classid {here} htb rate {GUARANTEED}"
        yield f"qdisc add dev {device} parent {here} bfifo limit 1"
    yield filter_line(plan, device, rate, "add")


def filter_line(plan: Plan, device: str, rate: str, verb: str = "replace") -> str:
    """The classifier, before all others. If it replaces one, it begins with empty queues."""
    where = f"dev {device} parent 1: protocol all prio {FIRST} handle 1"
    return f"filter {verb} {where} bpf object-file {compiled(plan, rate)} section tc"


def definitions(plan: Plan, rate: str) -> tuple[str, ...]:
    """The macros that configure the program for one port."""
    made = queues(plan)
    profiles = [(len(made) - 1, 0)] * DSCPS  # packets without a class are served last
    for number, queue in enumerate(made):
        lower, upper = thresholds(plan, queue)
        early = dict.fromkeys(queue.dropped_next, upper) | dict.fromkeys(queue.dropped_first, lower)
        for dscp in queue.dscps:
            profiles[dscp] = number, early.get(dscp, 0)
    return (
        f"QUEUES={len(made)}",
        f"LIMITS={{ {', '.join(str(queue.limit) for queue in made)} }}",
        f"PROFILES={{ {', '.join(f'{{ {queue}, {most} }}' for queue, most in profiles)} }}",
        f"BYTES_PER_SECOND={int(bits_per_second(rate) / 8 * DRAIN)}ULL",
        f"LONGEST={LONGEST}",
        f"TO_DROP={1 << 16 | MINOR}",
    )


@cache
def _objects() -> Scratch:
    """Folder of the object files until this process ends; made with the first one."""
    return scratch_folder()


@cache
def compiled(plan: Plan, rate: str) -> Path:
    """The object file of a port's program. Raises: FabricError."""
    if not shutil.which("clang"):
        raise FabricError("early_drop bpf: clang not found; install clang and libbpf-dev")
    macros = [f"-D{macro}" for macro in definitions(plan, rate)]
    headers = [f"-I{folder.parent}" for folder in HEADERS.glob("*/asm")]  # Debian's are per machine
    folder = Path(_objects().name)
    out = folder / f"{len(list(folder.iterdir()))}.o"
    how = ("clang", "-O2", "-g", "-target", "bpf")
    command(*how, *headers, *macros, "-c", str(SOURCE), "-o", str(out))
    return out
