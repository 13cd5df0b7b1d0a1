"""Ten thousand operations through two daemons: nothing may grow.

    python -m dlcp_lab.bench.soak [--operations 10000] [--json FILE]

After a tenth of the operations everything has been seen once: every size, every
buffer, every thread. What file descriptors, threads, resident memory and shared memory
are then, they must be at the end. Exit code: 0 nothing grew, 1 something did.
"""

import argparse
import contextlib
import gc
import os
import random
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Host, on_loopback, running
from dlcp_lab.ranks.launch import Rank
from dlcp_lab.ranks.rank import Conductor
from dlcpd.contract.errors import DlcpError
from dlcpd.ctl import table
from dlcpd.ctl.grammar import whole
from dlcpd.ctl.output import Output

MB: Final = 10**6
BLOCK: Final = 10  # the operations are this many times the same ones
# Bytes, and how often: mostly small ones, as most of a model's tensors are.
SIZES: Final = ((64, 20), (4_096, 30), (100_000, 30), (1 << 20, 15), (5_000_000, 5))
IN_FLIGHT: Final = 8  # operations
NAMES: Final = 20  # of bounded operations
ARENA: Final = 1 << 30  # bytes of address space per rank
LOSS: Final = 0.002  # injected, so that the paths of repair are walked as well
# Ledgers and digests fill up to their bounds slowly (seen: 33 to 38 MB over 20,000 operations,
# then level). A leak of 2 KB an operation is 18 MB.
PRIVATE_SLACK: Final = 12 * MB
# Large tensors straight from the kernel: the heap's fragmentation would hide a leak (seen: 30 MB).
MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": "65536"}
SHM_SLACK: Final = 16 << 20  # bytes; four steps of the arena: which regions are free is chance
RSS_BASE: Final = 150 * MB  # of one daemon: two interpreters with numpy and uvloop
TIMEOUT: Final = 1800.0  # seconds


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process holds."""

    fds: int
    threads: int
    rss: int  # bytes
    private: int  # bytes of it that are neither files nor shared memory


@dataclass(frozen=True, slots=True)
class Sample:
    """One host at one time."""

    control: Usage
    engine: Usage
    client: Usage
    shm: int  # bytes of all memfds, counted once


def usage(pid: int) -> Usage:
    """From /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    rows = re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE)
    numbers = {key: int(number) for key, number in rows}
    return Usage(
        len(os.listdir(f"/proc/{pid}/fd")),
        numbers["Threads"],
        numbers["VmRSS"] * 1024,
        numbers["RssAnon"] * 1024,
    )


def shared_memory(pids: Sequence[int]) -> int:
    """Bytes that the memfds of these processes really occupy."""
    found: dict[int, int] = {}
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as the folder's own
                if os.readlink(entry).startswith("/memfd:"):
                    about = entry.stat()
                    found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def sample(host: Host, rank: Rank) -> Sample:
    """Everything of one host."""
    control, client = host.daemon.process.pid, rank.child.process.pid
    [engine] = map(int, Path(f"/proc/{control}/task/{control}/children").read_text().split())
    return Sample(
        usage(control), usage(engine), usage(client), shared_memory([control, engine, client])
    )


def growth(early: Sample, late: Sample, who: str) -> Iterator[str]:
    """What grew between two samples."""
    for part in ("control", "engine", "client"):
        before, after = getattr(early, part), getattr(late, part)
        for name, slack in (("fds", 0), ("threads", 0), ("private", PRIVATE_SLACK)):
            was, now = getattr(before, name), getattr(after, name)
            if now > was + slack:
                yield f"{who}: {name} of the {part} grew from {was} to {now}"
    if late.shm > early.shm + SHM_SLACK:
        yield f"{who}: shared memory grew from {early.shm} to {late.shm} B"


def bound(late: Sample) -> int:
    """Bytes of resident memory that a daemon may have: 150 MB + arena + 2 x bytes in flight."""
    return RSS_BASE + late.shm + 2 * IN_FLIGHT * max(size for size, _ in SIZES)


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, Any]:
    """One rank: all operations, with a stop after the first block and after the last."""
    import dlcp_client  # noqa: PLC0415  # ranks alone need torch
    from dlcp_lab.ranks.tensors import join_file_store  # noqa: PLC0415

    session = join_file_store(conductor, arena_bytes=ARENA, job="soak")
    policies = (dlcp_client.exact(), dlcp_client.bounded())
    begin = time.perf_counter()
    try:
        for block in range(BLOCK):
            _block(session, arguments["operations"] // BLOCK, policies)
            if block in (0, BLOCK - 1):
                gc.collect()
                conductor.barrier(f"block {block}")
            conductor.progress(f"{(block + 1) * 100 // BLOCK} %")
        return {"seconds": time.perf_counter() - begin, "ledger": asdict(session.ledger)}
    finally:
        session.close()


def _block(session: Any, operations: int, policies: Sequence[Any]) -> None:
    import torch  # noqa: PLC0415

    choose = random.Random(1)  # the same block every time, on every rank
    sizes, weights = zip(*SIZES, strict=True)
    works: deque[Any] = deque()
    for number in range(operations):
        count = choose.choices(sizes, weights)[0] // 4
        make = session.empty if number % 2 else torch.empty
        tensor = make(count, dtype=torch.float32).fill_(1.0)
        name = f"soak{number % NAMES}"
        works.append(session.all_reduce(tensor, policy=policies[number % 3 == 0], name=name))
        if len(works) == IN_FLIGHT:
            works.popleft().wait()
    for work in works:
        work.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        prog="dlcp_lab.bench.soak", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--operations", type=whole(100, 10_000_000), default=10_000, metavar="N")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        return _soak(options, Output(options.json))
    except DlcpError as exc:
        sys.stderr.write(f"dlcp_lab.bench.soak: {exc}\n")
        return 1


def _soak(options: argparse.Namespace, output: Output) -> int:
    stops: list[list[Sample]] = []
    with running(on_loopback(2, loss=LOSS)) as hosts:

        def at_barrier(_where: str, ranks: Sequence[Rank]) -> None:
            stops.append([sample(*pair) for pair in zip(hosts.members, ranks, strict=True)])

        work = launch.Work(
            "dlcp_lab.bench.soak", {"operations": options.operations}, TIMEOUT, MALLOC
        )
        results = launch.run(hosts, work, progress=output.progress, at_barrier=at_barrier)
    early, late = stops
    problems = list(_problems(early, late))
    _print(output, options.operations, stops, results)
    for problem in problems or ["nothing grew"]:
        output.line(problem)
    output.document(
        {
            "command": "soak",
            "operations": options.operations,
            "injected_loss": LOSS,
            "samples": [[asdict(host) for host in stop] for stop in stops],
            "bounds": [bound(host) for host in late],
            "results": results,
            "problems": problems,
        }
    )
    return 1 if problems else 0


def _problems(early: Sequence[Sample], late: Sequence[Sample]) -> Iterator[str]:
    for number, (before, after) in enumerate(zip(early, late, strict=True)):
        yield from growth(before, after, f"host{number}")
        rss = after.control.rss + after.engine.rss
        if rss > bound(after):
            yield f"host{number}: the daemon holds {rss} B, more than its bound of {bound(after)} B"


def _print(
    output: Output, operations: int, stops: Sequence[Sequence[Sample]], results: Sequence[Any]
) -> None:
    rows = []
    for when, stop in zip(("10 %", "100 %"), stops, strict=True):
        for number, host in enumerate(stop):
            for part in ("control", "engine", "client"):
                held: Usage = getattr(host, part)
                rows.append(
                    [when, f"host{number}", part, held.fds, held.threads, f"{held.rss / MB:.1f}",
                     f"{held.private / MB:.1f}",
                     f"{host.shm / MB:.1f}"]
                )  # fmt: skip
    header = (
        "at",
        "host",
        "process",
        "fds",
        "threads",
        "RSS(MB)",
        "private(MB)",
        "shm of host(MB)",
    )
    seconds = results[0]["seconds"]
    output.line(f"{operations} operations in {seconds:.1f} s, {LOSS:.1%} INJECTED loss")
    output.line(table.render(header, rows, left=3))
    for number, host in enumerate(stops[-1]):
        rss = host.control.rss + host.engine.rss
        output.line(
            f"host{number}: daemon {rss / MB:.1f} MB resident, bound {bound(host) / MB:.1f} MB "
            f"= 150 MB + arena + 2 x bytes in flight"
        )


if __name__ == "__main__":
    sys.exit(main())
