"""The baseline: all-reduce by Gloo over TCP, as torch.distributed ships it.

    sudo .venv/bin/dlcpctl lab up --hosts 2 --rate 1gbit
    sudo .venv/bin/dlcpctl lab run -- \\
        .venv/bin/python -m dlcp_lab.bench.gloo_all_reduce --sizes 65536 16777216 --repeat 20

A comparison runs both transports in the same rank processes and alternates them per sample, so
that a disturbance of the host affects both: import `gloo_group` and `all_reduce` for that. Run as
a program, each rank prints one JSON line per size.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

TIMEOUT: Final = timedelta(seconds=60)  # ten times the longest sample; a dead rank is detected


def gloo_group(rank: int, world_size: int, store: Store) -> ProcessGroupGloo:
    """A Gloo group of its own, independent of a default group. Waits for all ranks.

    GLOO_SOCKET_IFNAME in the environment names the interface: Gloo's own choice is the
    address of the host's name, which is loopback on many hosts.
    """
    return ProcessGroupGloo(PrefixStore("gloo_baseline", store), rank, world_size, TIMEOUT)


def all_reduce(group: ProcessGroupGloo, tensor: torch.Tensor) -> None:
    """Sum in place over all ranks. Raises: RuntimeError when a rank is gone."""
    group.allreduce([tensor]).wait()  # type: ignore[attr-defined]  # torch's stub lacks it


def barrier(group: ProcessGroupGloo) -> None:
    """Wait for all ranks. Raises: RuntimeError when one is gone."""
    group.barrier().wait()  # type: ignore[attr-defined]  # torch's stub lacks it


def measure(
    reduce: Callable[[torch.Tensor], None],
    meet: Callable[[], None],
    *,
    sizes: Sequence[int],
    repeat: int,
) -> dict[int, list[float]]:
    """Seconds of each all-reduce of float32 by size in bytes; the sizes alternate.

    Each sample begins when `meet`, a barrier, returns. The first of each size is left out: it also
    makes connections and touches memory.
    """
    tensors = {size: torch.ones(size // 4) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for sample in range(repeat + 1):
        for size, tensor in tensors.items():
            tensor.fill_(1.0)
            meet()
            start = time.perf_counter()
            reduce(tensor)
            if sample:
                seconds[size].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Run one rank; rank, world size and store come from the environment (`dlcpctl lab run`)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1 << 16, 1 << 24], help="bytes")
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*master, world_size, is_master=rank == 0, timeout=TIMEOUT)
    group = gloo_group(rank, world_size, store)
    seconds = measure(
        lambda tensor: all_reduce(group, tensor),
        lambda: barrier(group),
        sizes=options.sizes,
        repeat=options.repeat,
    )
    for size, samples in seconds.items():
        print(json.dumps({"transport": "gloo", "rank": rank, "bytes": size, "seconds": samples}))
    barrier(group)  # no rank leaves while another measures: rank 0 has the store


if __name__ == "__main__":
    main()
