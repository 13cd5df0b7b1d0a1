"""The catalog of faults: which injection makes each of them on a host of a cluster."""

import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from dlcp_lab.faults.clock import Clock
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.injections import (
    ClockJump,
    Disturb,
    Injection,
    Kill,
    Limit,
    Pause,
    Silence,
    Terminate,
)
from dlcp_lab.faults.kinds import Fault
from dlcp_lab.faults.leaks import children
from dlcp_lab.faults.relay import Relay
from dlcp_lab.faults.rules import Corrupt, Cut, Duplicate, Reorder, Way

SHARE: Final = 0.05  # fraction of datagrams that are corrupted or duplicated
SPAN: Final = 8  # datagrams that are reordered together
NO_ARENA: Final = 24 << 20  # bytes of address space: less than an arena, enough to report it

Makers = Mapping[Fault, Callable[[], Injection]]


class Process(Protocol):
    """A process that can be stopped and killed."""

    @property
    def pid(self) -> int:
        """Process id."""


class Ranks(Protocol):
    """A job's processes, by rank; rank R is on host R."""

    @property
    def trainers(self) -> Sequence[Process]:
        """The training processes."""

    def control(self, rank: int) -> int:
        """Process id of the control process that serves a rank."""

    def engine(self, rank: int) -> int:
        """Process id of the engine that serves a rank."""


@dataclass(frozen=True, slots=True)
class Victim:
    """The processes on the host with the fault. A fault asks for their ids when it begins, because
    a restarted process has another one."""

    job: Ranks
    host: int

    def trainer(self) -> int:
        """Process id of the rank on the host."""
        return self.job.trainers[self.host].pid

    def control(self) -> int:
        """Process id of the control process."""
        return self.job.control(self.host)

    def engine(self) -> int:
        """Process id of the engine."""
        return self.job.engine(self.host)

    def daemon(self) -> Iterator[int]:
        """Process ids of the control process and of its engines."""
        control = self.control()
        yield control
        yield from children(control)


def make(fault: Fault, cluster: Cluster, job: Ranks, victim: int, seed: int = 0) -> Injection:
    """The injection of a fault of host `victim`, or of the rank of `job` on it."""
    relay, its = cluster.relay, Victim(job, victim)
    others = [host for host in range(cluster.network.hosts) if host != victim]
    makers: dict[Fault, Callable[[], Injection]] = {
        **_ends(relay, its),
        **_pauses(relay, its),
        **_disturbances(relay, victim, others, seed),
        **_limits(its),
        Fault.CLOCK_JUMP: lambda: ClockJump(Clock(cluster.clock(victim))),
    }
    return makers[fault]()


def _ends(relay: Relay, its: Victim) -> Makers:
    """Faults that end a process."""
    return {
        Fault.KILL_TRAINER: lambda: Kill(lambda: [its.trainer()], relay, its.host),
        Fault.KILL_DAEMON: lambda: Kill(lambda: [its.control()], relay, its.host),
        Fault.KILL_ENGINE: lambda: Kill(lambda: [its.engine()], relay, its.host),
        Fault.RESTART: lambda: Terminate(its.control),
    }


def _pauses(relay: Relay, its: Victim) -> Makers:
    """Faults that stop processes for a time. A host without its engine is silent."""
    parts: dict[str, tuple[Callable[[], int], ...]] = {
        "trainer": (its.trainer,),
        "daemon": (its.control,),
        "engine": (its.engine,),
        "host": (its.trainer, its.control, its.engine),
    }

    def pause(name: str) -> Injection:
        def stopped() -> list[int]:
            return [pid() for pid in parts[name]]

        silent = its.engine in parts[name]
        return Silence(stopped, relay, its.host) if silent else Pause(stopped)

    faults = [fault for fault in Fault if fault.startswith("pause ")]
    return {fault: partial(pause, fault.split()[1]) for fault in faults}


def _disturbances(relay: Relay, victim: int, others: Sequence[int], seed: int) -> Makers:
    """Faults of the network around the host."""
    both = [Way(source=victim), Way(target=victim)]
    path = [Way(source=victim, path=0), Way(target=victim, path=0)]
    pairs = [frozenset((victim, other)) for other in others]
    apart = [Way(victim, others[0]), Way(others[0], victim)]
    return {
        Fault.CUT_PATH: lambda: Disturb(relay, [Cut(path)]),
        Fault.CUT_HOST: lambda: Disturb(relay, [Cut(both)], pairs),
        Fault.PARTITION: lambda: Disturb(relay, [Cut(apart)], pairs[:1]),
        Fault.ONE_WAY: lambda: Disturb(relay, [Cut([Way(source=victim)])]),
        Fault.CORRUPT: lambda: Disturb(relay, [Corrupt(both, seed, SHARE)]),
        Fault.DUPLICATE: lambda: Disturb(relay, [Duplicate(both, seed, SHARE)]),
        Fault.REORDER: lambda: Disturb(relay, [Reorder(both, seed, SPAN)]),
    }


def _limits(its: Victim) -> Makers:
    """Faults that take a resource from processes."""

    def memory() -> dict[int, int]:
        pid = its.trainer()
        return {pid: _address_space(pid) + NO_ARENA}

    return {
        Fault.SHM_FULL: lambda: Limit(resource.RLIMIT_AS, memory),
        Fault.FD_LIMIT: lambda: Limit(
            resource.RLIMIT_NOFILE, lambda: {pid: _open_files(pid) for pid in its.daemon()}
        ),
        Fault.DISK_FULL: lambda: Limit(
            resource.RLIMIT_FSIZE, lambda: dict.fromkeys(its.daemon(), 0)
        ),
    }


def _open_files(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1


def _address_space(pid: int) -> int:
    """Address space of a process, bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()
