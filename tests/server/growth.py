"""What pushes and pulls leave behind: `python -m tests.server.growth 10000`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dlcp_client import bounded, ps
from dlcp_client.ps.host_daemon import HostDaemon
from tests.server.kit import served

RATE = ps.sgd(0.1, 0.9)
TENSORS = [ps.NamedTensor("v", (1000,)), ps.NamedTensor("w", (64, 10))]


def run(folder: Path, operations: int) -> list[dict[str, int]]:
    """Counts after a tenth of the operations, and after all."""
    host_daemon = HostDaemon()
    seen = []
    with served(folder, host_daemon, shards=2) as found:
        client = ps.connect(TENSORS, RATE, rank=0, world_size=1, policy=bounded(0.01), **found)
        client.lossy = True
        into: list[Any] = [np.zeros(one.shape, np.float32) for one in TENSORS]
        client.initialise(into)
        for number in range(1, operations + 1):
            client.push_pull([np.ones(one.shape, np.float32) for one in TENSORS], into, RATE.groups)
            if number in (operations // 10, operations):
                seen.append(_counts(folder, client))
        client.close()
    host_daemon.close()
    return seen


def _counts(folder: Path, client: ps.Client) -> dict[str, int]:
    own = psutil.Process()
    daemons = own.children(recursive=True)
    sessions = [link._session for link in client._links]  # noqa: SLF001
    return {
        "version": client.version,
        "descriptors": own.num_fds(),
        "threads": own.num_threads(),
        "descriptors of daemons": sum(one.num_fds() for one in daemons),
        "keys": len(list((folder / "store").iterdir())),
        "files": len([path for path in (folder / "snapshots").rglob("*") if path.is_file()]),
        "arena": sum(one._connection.arena.used for one in sessions if one),  # noqa: SLF001
        "held": sum(len(one._connection.table.memory) for one in sessions if one),  # noqa: SLF001
        "memory": own.memory_info().rss >> 10,
        "memory of daemons": sum(one.memory_info().rss >> 10 for one in daemons),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for counts in run(Path(place), int(sys.argv[1])):
            sys.stdout.write(f"{counts}\n")
