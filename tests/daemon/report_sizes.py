"""Prints what a report and a health question cost a daemon, by the size of its jobs.

python -m tests.daemon.report_sizes. The engine is a stand-in whose rows have all values of the real
one; CPU seconds are those of the control process, by the kernel's scheduler.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcp_lab.bench.meter import cpu_seconds
from dlcpd.contract.inquiries import Health, HealthRequest, Status
from dlcpd.inspection.conversation import Conversation
from tests.daemon.kit import Daemon, configuration

RANKS: Final = (8, 32, 64, 128, 256)
PATHS: Final = (1, 4, 16)
QUESTIONS: Final = 200


@dataclass(frozen=True)
class Cost:
    """Of one report, and of one question for health."""

    peers: int  # rows of peers and paths
    size: int  # bytes of all parts
    report: float  # CPU seconds of control
    health: float


def cost(folder: Path, ranks: int, paths: int, questions: int = QUESTIONS) -> Cost:
    """Measure a daemon with 8 ranks of a job of `ranks`."""
    with Daemon(configuration(folder), mode=f"big:{ranks}:{paths}") as daemon:
        process = daemon.ready().process.pid
        with Conversation(str(daemon.socket)) as client:
            client.status(0)  # imports and first allocations
            before = cpu_seconds(process)
            report = client.status(0)
            asked = cpu_seconds(process)
            for _ in range(questions):
                assert client.ask(HealthRequest(), Health).healthy
            after = cpu_seconds(process)
    engine = report["engine"]
    assert "error" not in engine and "truncated" not in engine
    rows = sum(len(row["paths"]) for each in engine["sessions"].values() for row in each["peers"])
    size = sum(len(part.report) for part in Status.parts(report))
    return Cost(rows, size, asked - before, (after - asked) / questions)


def main() -> None:
    """Print the table."""
    print("| ranks | paths | rows of paths | report (KiB) | CPU of it (ms) | of health (ms) |")
    print("|---|---|---|---|---|---|")
    for ranks in RANKS:
        for paths in PATHS:
            with tempfile.TemporaryDirectory() as folder:
                it = cost(Path(folder), ranks, paths)
            values = it.peers, it.size >> 10, f"{it.report * 1e3:.1f}", f"{it.health * 1e3:.2f}"
            print(f"| {ranks} | {paths} |", " | ".join(map(str, values)), "|", flush=True)


if __name__ == "__main__":
    main()
