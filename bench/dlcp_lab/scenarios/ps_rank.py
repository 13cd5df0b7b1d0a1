"""One rank of `bench ps`. Rank 0 has the server and is the root of Gloo; the others are workers,
each with a shard of another server."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import dlcp_client
from dlcp_client import ps
from dlcp_client.numpy import file_store
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.server.config import ServerConfig
from dlcp_client.server.hosting import HostedShards
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo

RATE: Final = ps.sgd(0.1)
END: Final = 30.0  # seconds for the server's thread to end

Step = Callable[[], object]


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, list[float]]:
    """System -> seconds of each step; those of rank 0 do not count."""
    torch.set_num_threads(1)
    join_gloo(conductor)
    with ExitStack() as stack:
        steps = _SystemSteps(conductor, arguments, stack).by_name()
        times: dict[str, list[float]] = {name: [] for name in arguments["systems"]}
        order = random.Random(arguments["seed"])  # equal on all ranks
        for number in range(arguments["warmup"] + arguments["rounds"]):
            conductor.progress(f"{conductor.world_size - 1} workers: step {number}")
            turns = list(arguments["systems"])
            order.shuffle(turns)
            for name in turns:
                conductor.barrier("step")
                begin = time.perf_counter()
                steps[name]()
                if number >= arguments["warmup"]:
                    times[name].append(time.perf_counter() - begin)
        conductor.barrier("end")
    dist.destroy_process_group()
    return times


class _SystemSteps:
    """The step of each system. Rank 0 has one only in Gloo's reduce and broadcast."""

    def __init__(self, conductor: Conductor, arguments: dict[str, Any], stack: ExitStack) -> None:
        self._conductor, self._stack, self._bounds = conductor, stack, arguments["bounds"]
        self._names, self._is_worker = arguments["systems"], conductor.rank > 0
        self._workers = conductor.world_size - 1
        self._size = arguments["size"] // 4
        generator = torch.Generator().manual_seed(1000 * arguments["seed"] + conductor.rank)
        self._gradient = torch.randn(self._size, generator=generator)
        self._parameters = torch.zeros(self._size)

    def by_name(self) -> dict[str, Step]:
        """Steps by system, in the order of the systems of `bench ps`."""
        all_reduce = self._all_reduce()
        servers = [self._server(f"one{number}", b) for number, b in enumerate(self._bounds)]
        lossy = [self._pushes(client, lossy=True) for client in servers]
        exact = self._pushes(servers[0], lossy=False)
        spread = self._server("each", self._bounds[0], shards=self._workers)
        each = [self._pushes(spread, lossy=lossy, parts=self._workers) for lossy in (False, True)]
        group = dist.new_group(list(range(1, self._workers + 1)))
        steps = [self._gloo, lambda: self._gloo_all(group), all_reduce, exact, *lossy, *each]
        return dict(zip(self._names, steps, strict=True))

    def _gloo(self) -> None:
        total = self._gradient.clone() if self._is_worker else torch.zeros(self._size)
        dist.reduce(total, 0)
        if not self._is_worker:
            self._parameters.add_(total, alpha=-0.1 / self._workers)
        dist.broadcast(self._parameters, 0)

    def _gloo_all(self, group: Any) -> None:
        if self._is_worker:
            total = self._gradient.clone()
            dist.all_reduce(total, group=group)
            self._parameters.add_(total, alpha=-0.1 / self._workers)

    def _all_reduce(self) -> Step:
        if not self._is_worker:
            return lambda: None
        store = FileStore(f"{self._conductor.store}.all", self._workers)
        session = dlcp_client.connect(store, self._conductor.rank - 1, self._workers)
        self._stack.callback(session.close)

        def step() -> None:
            total = self._gradient.clone()
            session.all_reduce(total, "avg").wait()
            self._parameters.add_(total, alpha=-0.1)

        return step

    def _server(self, name: str, bound: float, shards: int = 1) -> ps.Client | None:
        """Start a server with one shard on rank 0, or with one on every worker; returns a client
        of it on workers."""
        folder, own = Path(f"{self._conductor.store}.{name}"), self._conductor.rank
        if (own > 0) == (shards > 1):
            config = ServerConfig("server", shards, str(folder), str(folder / "snapshots"))
            self._stack.enter_context(_served(replace(config, serve=(max(own - 1, 0),))))
        if not self._is_worker:
            return None
        client = ps.connect(
            [ps.NamedTensor(f"w{part}", (self._size // shards,)) for part in range(shards)],
            RATE,
            policy=dlcp_client.bounded(bound),
            store=folder,
            rank=own - 1,
            world_size=self._workers,
            job="bench",
        )
        self._stack.callback(client.close)
        parameters = [np.zeros(self._size // shards, np.float32) for _ in range(shards)]
        client.initialise(parameters)
        client.pull(parameters, wait=60.0)
        return client

    def _pushes(self, client: ps.Client | None, *, lossy: bool, parts: int = 1) -> Step:
        if client is None:
            return lambda: None
        gradients = np.split(self._gradient.numpy(), parts)
        parameters = np.split(np.empty(self._size, np.float32), parts)

        def step() -> None:
            client.lossy = lossy
            client.push_pull(gradients, parameters, RATE.groups)

        return step


@contextmanager
def _served(config: ServerConfig) -> Iterator[None]:
    """A server process, here as a thread, on the host's daemon."""
    home, stop = HostDaemon(), threading.Event()

    def serve() -> None:
        directory = Directory(file_store.FileStore(Path(config.store)), config.name)
        with HostedShards(config, directory, home) as hosting:
            hosting.run(stop, standby=False)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END)
        home.close()
