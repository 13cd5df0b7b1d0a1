"""Faults of this machine's processes and of the network between them: begun, ended, counted.

`fired` counts the effects of a fault: signals sent, datagrams changed, connections held. A fault
that never fired has tested nothing.
"""

import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from dlcp_lab.emulation.patience import patience
from dlcp_lab.faults.clock import Clock
from dlcp_lab.faults.processes import ended
from dlcp_lab.faults.relay import Relay
from dlcp_lab.faults.rules import Cut, Rule, Way

ENDED: Final = 10.0  # seconds in which a killed process is gone, on an idle machine
JUMP: Final = 3600  # seconds


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
            ended(pid, patience(ENDED))

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
            ended(self._asked, patience(ENDED))


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
