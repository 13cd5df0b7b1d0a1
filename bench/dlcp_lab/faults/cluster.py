"""Hosts of one network on this machine: a daemon each, a relay between them, and jobs on them.

`repair` restarts processes that faults have ended; the context ends all of them.
"""

import itertools
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.faults.clock import Clock
from dlcp_lab.faults.leaks import children
from dlcp_lab.faults.network import CONTROL_PORT, DATA_PORT, METRICS_PORT, Network
from dlcp_lab.faults.relay import Relay
from dlcp_lab.faults.trainer import RESULT, Outcome, RankPlace, Trainer
from dlcp_lab.ranks.hosts import Host, HostPlan, Starting
from dlcpd.contract.errors import error_for
from dlcpd.core.wire.sizes import BASE
from dlcpd.daemon.config.tables import NetworkTable

JOIN: Final = 20.0  # seconds; daemons serve already
DRAIN: Final = 5.0  # seconds
ENDING: Final = 60.0  # seconds; an engine that follows many ended ones starts after 30 s
LOOK: Final = 0.02  # seconds between two looks at a daemon without an engine
ANSWER: Final = 60.0  # seconds from a deadline that a trainer may be late on a loaded machine


class Cluster:
    """Hosts are numbered from 0. `serve`: start a daemon on each; jobs over private daemons need
    none. `clocks`: hosts whose wall clock can jump. `metrics`: daemons serve METRICS_PORT."""

    def __init__(
        self,
        hosts: int,
        paths: int = 1,
        *,
        peer_timeout: float = 1.0,
        serve: bool = True,
        clocks: Collection[int] = (),
        metrics: bool = False,
    ) -> None:
        self.network = Network(hosts, paths)
        self._table = NetworkTable(peer_timeout=peer_timeout, segment_size=BASE)
        self._serve, self._clocks, self._metrics = serve, clocks, metrics
        self._stack = ExitStack()
        self.hosts: list[Host] = []
        self.jobs: list[TrainerJob] = []

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._stack = undo
            self.folder = Path(undo.enter_context(scratch_folder()))
            undo.callback(self._end)
            if self._serve:
                self._start(range(self.network.hosts))
            self.relay = undo.enter_context(Relay(self.network, self.controls))
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def controls(self) -> list[int]:
        """Process ids of the control processes, by host."""
        return [host.daemon.process.pid for host in self.hosts]

    def processes(self) -> Iterator[tuple[str, int]]:
        """Control processes and engines of the hosts: (part, process id)."""
        for number, pid in enumerate(self.controls()):
            yield f"host{number} control", pid
            for engine in children(pid):
                yield f"host{number} engine", engine

    def dead(self) -> list[int]:
        """Hosts whose daemon has ended. Waits for daemons without an engine: each starts one or
        ends. Raises: TimeoutError."""
        until = time.monotonic() + ENDING
        for host in self.hosts:
            process = host.daemon.process
            while process.poll() is None and not children(process.pid):
                if time.monotonic() >= until:
                    raise TimeoutError(f"daemon {process.pid} had no engine after {ENDING:g} s")
                time.sleep(LOOK)
        members = enumerate(self.hosts)
        return [number for number, host in members if host.daemon.process.poll() is not None]

    def repair(self) -> None:
        """Restart ended daemons, then ended trainers. Raises: DaemonUnavailable."""
        self.restart()
        for job in self.jobs:
            job.repair()

    def restart(self) -> None:
        """Start daemons that have ended, as their service manager would.

        Raises: DaemonUnavailable.
        """
        self._start(self.dead())

    def plan(self, host: int) -> HostPlan:
        """The plan of a host."""
        paths = range(self.network.paths)
        return HostPlan(
            f"host{host}",
            tuple(self.network.address(host, path) for path in paths),
            network=self._table,
            port=DATA_PORT,
            control_port=CONTROL_PORT,
            drain=DRAIN,
            metrics=f"{self.network.address(host)}:{METRICS_PORT}" if self._metrics else "",
            relays=tuple(self.network.relay(host, path) for path in paths),
        )

    def _start(self, numbers: Sequence[int]) -> None:
        with ExitStack() as waiting:
            starting = [waiting.enter_context(self._starting(number)) for number in numbers]
            for number, one in zip(numbers, starting, strict=True):
                self.hosts[number : number + 1] = [one.host]
            for one in starting:
                one.wait()

    def _starting(self, number: int) -> Starting:
        plan = self.plan(number)
        clock = Clock(self.clock(number)).environ() if number in self._clocks else {}
        return Starting(self.folder / plan.name, plan, clock)

    def clock(self, host: int) -> Path:
        """File that sets the wall clock of a host."""
        return self.folder / f"clock{host}"

    def _end(self) -> None:
        for job in self.jobs:
            job.end()
        for host in self.hosts:
            host.daemon.process.send_signal(signal.SIGCONT)
            host.daemon.stop(signal.SIGTERM)


class TrainerJob:
    """A trainer on every host. They join, reduce and leave together."""

    def __init__(self, cluster: Cluster, name: str, *, embedded: bool = False) -> None:
        self._cluster, self.name, self.embedded = cluster, name, embedded
        self._joins = itertools.count(1)
        self._daemons: list[int] = []  # private ones, by rank
        self.trainers = [self._trainer(host) for host in range(cluster.network.hosts)]
        cluster.jobs.append(self)

    def _trainer(self, host: int) -> Trainer:
        return Trainer(self._cluster.folder / f"{self.name}-{host}.log")

    @property
    def world(self) -> int:
        return len(self.trainers)

    def control(self, rank: int) -> int:
        """Process id of the control process that serves a rank."""
        return self._daemons[rank] if self.embedded else self._cluster.controls()[rank]

    def processes(self) -> Iterator[tuple[str, int]]:
        """Its trainers: (part, process id)."""
        for rank, trainer in enumerate(self.trainers):
            yield f"{self.name} rank {rank}", trainer.pid

    def engine(self, rank: int) -> int:
        """Process id of the engine that serves a rank."""
        [engine] = children(self.control(rank))
        return engine

    def begin_join(self, timeout: float = JOIN) -> None:
        """Tell all ranks to join a new session."""
        store = self._cluster.folder / f"{self.name}-store{next(self._joins)}"
        for rank, trainer in enumerate(self.trainers):
            trainer.ask("join", place=self._place(rank, str(store), timeout))

    def join(self) -> None:
        """Join a new session on all ranks. Raises: DlcpError of the first rank that failed."""
        self.begin_join()
        told = self.answers(2 * JOIN)
        raise_unless(told)
        self._daemons = [one["daemon"] for one in told]

    def all(self, name: str, **arguments: Any) -> list[Outcome]:
        """Run the same call on every rank, and wait for all outcomes."""
        for trainer in self.trainers:
            trainer.ask(name, **arguments)
        return self.answers(arguments.get("deadline", 0.0) + ANSWER)

    def answers(self, timeout: float) -> list[Outcome]:
        """Outcome of every rank. Raises: TimeoutError."""
        return [trainer.answer(timeout) for trainer in self.trainers]

    def close(self) -> None:
        """Leave the session on all ranks that run."""
        self.all("close")

    def repair(self) -> None:
        """Restart trainers that have ended."""
        for host, trainer in enumerate(self.trainers):
            if not trainer.alive:
                trainer.end()
                self.trainers[host] = self._trainer(host)

    def renew(self) -> None:
        """Kill and restart all trainers: their state is unknown."""
        for trainer in self.trainers:
            trainer.kill()
        self.repair()

    def end(self) -> None:
        """End the trainers, and with them their private daemons."""
        for trainer in self.trainers:
            trainer.end()

    def _place(self, rank: int, store: str, timeout: float) -> RankPlace:
        if self.embedded:
            private = str(self._private(rank))
            return RankPlace(store, rank, self.world, self.name, config=private, timeout=timeout)
        door = self._cluster.hosts[rank].socket
        return RankPlace(store, rank, self.world, self.name, socket=door, timeout=timeout)

    def _private(self, rank: int) -> Path:
        """Configuration file of a private daemon, which replaces the host's daemon."""
        file = self._cluster.folder / f"{self.name}-{rank}.toml"
        file.write_text(self._cluster.plan(rank).configuration(self._cluster.folder))
        return file


def raise_unless(told: Sequence[Outcome]) -> None:
    """Raises: DlcpError unless all ranks succeeded; with the code of the first rank that failed and
    the texts of all."""
    failed = [(rank, one) for rank, one in enumerate(told) if one["code"] != RESULT]
    if failed:
        texts = "; ".join(f"rank {rank}: {one['text']}" for rank, one in failed)
        raise error_for(failed[0][1]["code"], texts)
