"""Faults of this machine's processes and of the network between them: begun, ended, counted.

`fired` counts the effects of a fault: signals sent, datagrams changed, connections held. A fault
that never fired has tested nothing.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from dlcp_lab.faults.clock import Clock
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.kinds import Fault
from dlcp_lab.faults.leaks import children
from dlcp_lab.faults.processes import ended
from dlcp_lab.faults.relay import Relay
from dlcp_lab.faults.rules import Corrupt, Cut, Duplicate, Reorder, Rule, Way

ENDED: Final = 10.0  # seconds in which a killed process is gone
SHARE: Final = 0.05  # fraction of datagrams that are corrupted or duplicated
SPAN: Final = 8  # datagrams that are reordered together
JUMP: Final = 3600  # seconds
NO_ARENA: Final = 24 << 20  # bytes of address space: less than an arena, enough to report it


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


class Injection(Protocol):
    """A fault. Any thread may call `begin`; the thread that made it calls `end`."""

    @property
    def fired(self) -> int:
        """Number of its effects so far."""

    def begin(self) -> None:
        """Inject the fault."""

    def end(self) -> None:
        """End the fault, as when a cable is plugged in again. Killed processes stay dead."""


class Kill:
    """Kills processes, and drops the datagrams of their host that are in flight."""

    def __init__(self, pids: Callable[[], Sequence[int]], relay: Relay, host: int) -> None:
        self.fired = 0
        self._pids, self._relay = pids, relay
        self._lost = Cut([Way(source=host)])

    def begin(self) -> None:
        self._relay.add(self._lost)
        for pid in self._pids():
            self.fired += 1
            os.kill(pid, signal.SIGKILL)
            ended(pid, ENDED)

    def end(self) -> None:
        self._relay.remove(self._lost)


class Terminate:
    """Sends SIGTERM to a process; a daemon lets open operations finish first."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self.fired, self._pid = 0, pid
        self._asked = 0  # process id

    def begin(self) -> None:
        self._asked = self._pid()
        os.kill(self._asked, signal.SIGTERM)
        self.fired += 1

    def end(self) -> None:
        """Wait until it has ended."""
        if self._asked:
            ended(self._asked, ENDED)


class Pause:
    """Stops processes with SIGSTOP; they continue at the end."""

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self.fired = 0
        self._pids, self._stopped = pids, list[int]()

    def begin(self) -> None:
        self._stopped = list(self._pids())
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)
            self.fired += 1

    def end(self) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Silence:
    """Stops the processes of a host, and drops its datagrams in flight, so that the outcome depends
    on the phase and not on the datagrams in the network."""

    def __init__(self, pids: Callable[[], Sequence[int]], relay: Relay, host: int) -> None:
        self._pause, self._relay = Pause(pids), relay
        self._lost = Cut([Way(source=host)])

    @property
    def fired(self) -> int:
        """Signals sent."""
        return self._pause.fired

    def begin(self) -> None:
        self._relay.add(self._lost)
        self._pause.begin()

    def end(self) -> None:
        self._relay.remove(self._lost)
        self._pause.end()


class Disturb:
    """Rules of the relay, and pairs of hosts whose control processes cannot communicate."""

    def __init__(
        self, relay: Relay, rules: Sequence[Rule], pairs: Sequence[frozenset[int]] = ()
    ) -> None:
        self._relay, self._rules, self._pairs = relay, rules, pairs
        self._held = relay.held

    @property
    def fired(self) -> int:
        """Datagrams dropped or changed, and times that a connection was held."""
        held = self._relay.held - self._held if self._pairs else 0
        return sum(rule.fired for rule in self._rules) + held

    def begin(self) -> None:
        self._held = self._relay.held
        for rule in self._rules:
            self._relay.add(rule)
        if self._pairs:
            self._relay.cut_controls(self._pairs)

    def end(self) -> None:
        for rule in self._rules:
            self._relay.remove(rule)
        if self._pairs:
            self._relay.cut_controls(())


class Limit:
    """Limits a resource of running processes: `limits` are soft limits by pid, for prlimit(2)."""

    def __init__(self, kind: int, limits: Callable[[], dict[int, int]]) -> None:
        self.fired = 0
        self._kind, self._limits = kind, limits
        self._before = dict[int, tuple[int, int]]()

    def begin(self) -> None:
        for pid, soft in self._limits().items():
            self._before[pid] = resource.prlimit(pid, self._kind)
            resource.prlimit(pid, self._kind, (soft, self._before[pid][1]))
            self.fired += 1

    def end(self) -> None:
        for pid, before in self._before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, self._kind, before)


class ClockJump:
    """Sets the wall clock of a host's daemon, an hour ahead and then an hour back."""

    def __init__(self, clock: Clock) -> None:
        self.fired, self._clock = 0, clock

    def begin(self) -> None:
        self._clock.set(JUMP)
        self.fired += 1

    def end(self) -> None:
        self._clock.set(-JUMP)


def make(fault: Fault, cluster: Cluster, job: Ranks, victim: int, seed: int = 0) -> Injection:
    """The injection of a fault of host `victim`, or of the rank of `job` on it."""
    relay, hosts = cluster.relay, range(cluster.network.hosts)
    others = [host for host in hosts if host != victim]
    both = [Way(source=victim), Way(target=victim)]

    def pairs(others: Sequence[int]) -> list[frozenset[int]]:
        return [frozenset((victim, other)) for other in others]

    def kill(pid: Callable[[], int]) -> Injection:
        return Kill(lambda: [pid()], relay, victim)

    def pause(*pids: Callable[[], int]) -> Injection:
        def stopped() -> list[int]:
            return [pid() for pid in pids]

        return Silence(stopped, relay, victim) if engine in pids else Pause(stopped)

    def trainer() -> int:
        return job.trainers[victim].pid

    def control() -> int:
        return job.control(victim)

    def engine() -> int:
        return job.engine(victim)

    processes: dict[str, tuple[Callable[[], int], ...]] = {
        "trainer": (trainer,),
        "daemon": (control,),
        "engine": (engine,),
        "host": (trainer, control, engine),
    }
    if fault.startswith("pause "):
        return pause(*processes[fault.split()[1]])
    made: dict[Fault, Callable[[], Injection]] = {
        Fault.KILL_TRAINER: lambda: kill(trainer),
        Fault.KILL_DAEMON: lambda: kill(control),
        Fault.KILL_ENGINE: lambda: kill(engine),
        Fault.RESTART: lambda: Terminate(control),
        Fault.CUT_PATH: lambda: Disturb(
            relay, [Cut([Way(source=victim, path=0), Way(target=victim, path=0)])]
        ),
        Fault.CUT_HOST: lambda: Disturb(relay, [Cut(both)], pairs(others)),
        Fault.PARTITION: lambda: Disturb(
            relay, [Cut([Way(victim, others[0]), Way(others[0], victim)])], pairs(others[:1])
        ),
        Fault.ONE_WAY: lambda: Disturb(relay, [Cut([Way(source=victim)])]),
        Fault.CORRUPT: lambda: Disturb(relay, [Corrupt(both, seed, SHARE)]),
        Fault.DUPLICATE: lambda: Disturb(relay, [Duplicate(both, seed, SHARE)]),
        Fault.REORDER: lambda: Disturb(relay, [Reorder(both, seed, SPAN)]),
        Fault.CLOCK_JUMP: lambda: ClockJump(Clock(cluster.clock(victim))),
        Fault.SHM_FULL: lambda: Limit(
            resource.RLIMIT_AS, lambda: {trainer(): _address_space(trainer()) + NO_ARENA}
        ),
        Fault.FD_LIMIT: lambda: Limit(
            resource.RLIMIT_NOFILE, lambda: {pid: _open_files(pid) for pid in _daemon(control())}
        ),
        Fault.DISK_FULL: lambda: Limit(
            resource.RLIMIT_FSIZE, lambda: dict.fromkeys(_daemon(control()), 0)
        ),
    }
    return made[fault]()


def _daemon(control: int) -> Iterator[int]:
    yield control
    yield from children(control)


def _open_files(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1


def _address_space(pid: int) -> int:
    """Address space of a process, bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()
