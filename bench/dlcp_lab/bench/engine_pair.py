"""Two engines with a session between them, stepped in turn in one thread.

An engine is stepped when it has something to do, as it would wake up in a process of its own.
"""

import gc
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from dlcp_lab.bench.engine_host import EngineHost
from dlcp_lab.report.statistic import NotMeasured, mean
from dlcpd.contract.messages import Submit
from dlcpd.daemon.engine_reports import add_part
from dlcpd.io import commands, control_events
from dlcpd.io.config import EngineConfig
from dlcpd.io.heap import collect_rarely, keep_warm
from dlcpd.io.poll import EngineBroken, Poll

LOOK: Final = 0.05  # seconds after which a time limit is checked though nothing happens
CLOSING: Final = 5.0  # seconds for the end of the session, and to unmap its arenas
SECRET: Final = 32  # bytes


class EnginePair:
    """Engines of one job; each host has one rank. Make it with `engine_pair`."""

    def __init__(self, hosts: Sequence[EngineHost]) -> None:
        self.hosts = list(hosts)
        self.submitted = 0  # operations
        self._poll = Poll()
        for host in hosts:
            self._poll.watch(host.engine, host.on_ready)

    def open(self, arena_bytes: int, until: float, *, keyed: bool) -> None:
        """Open the session, and find out the largest datagrams. Raises: DlcpError, OSError."""
        keys = {
            (receiver, sender): secrets.token_bytes(SECRET) if keyed else b""
            for receiver in range(len(self.hosts))
            for sender in range(len(self.hosts))
        }
        for rank, host in enumerate(self.hosts):
            peers = [
                commands.EnginePeer(
                    peer,
                    other.name,
                    _token(rank, peer),
                    _token(peer, rank),
                    other.engine.network.endpoints,
                    keys[rank, peer],
                    keys[peer, rank],
                )
                for peer, other in enumerate(self.hosts)
                if peer != rank
            ]
            host.open(rank, peers, arena_bytes)
        while not all(host.serves and host.settled for host in self.hosts):
            self.turn(until)

    def turn(self, until: float) -> None:
        """One wake-up of each engine that has something to do; if none has, wait for that.

        Raises: NotMeasured after `until`, and if an engine, the session or an operation ends with
        an error.
        """
        now = time.monotonic()
        if now >= until:
            raise NotMeasured("the engines did not finish in time: the machine may be too busy")
        due = [wait for host in self.hosts if (wait := host.engine.timeout(now)) >= 0.0]
        try:
            woken = [handler for handler, _ in self._poll.wait(min(LOOK, until - now, *due))]
        except EngineBroken as exc:
            raise NotMeasured("this machine refuses to wait for sockets") from exc
        for host in self.hosts:
            if host.on_ready in woken or host.engine.timeout(time.monotonic()) == 0.0:
                host.step()

    def operate(self, requests: Sequence[Submit], until: float) -> float:
        """Carry out one operation, of which each rank has a request with the number `submitted` +
        1. Returns the CPU seconds of an engine, mean of all. Raises: NotMeasured, OSError."""
        before = [host.cpu for host in self.hosts]
        self.submitted += 1
        for host, request in zip(self.hosts, requests, strict=True):
            host.submit(request)
        while any(host.done < self.submitted for host in self.hosts):
            self.turn(until)
        return mean([host.cpu - was for host, was in zip(self.hosts, before, strict=True)]) / 1e9

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the function calls of all engines meanwhile, by event of sys.setprofile."""
        calls = Counter[str]()
        for host in self.hosts:
            host.calls = calls
        try:
            yield calls
        finally:
            for host in self.hosts:
                host.calls = None

    def reports(self, until: float) -> list[dict[str, Any]]:
        """The report of each engine. Raises: NotMeasured, OSError."""
        found: dict[str, dict[str, Any]] = {host.name: {} for host in self.hosts}
        for host in self.hosts:
            host.tell(commands.ReportRequest(0))
        missing = len(self.hosts)
        while missing:
            self.turn(until)
            for host in self.hosts:
                for event in host.events():
                    if isinstance(event, control_events.Report):
                        add_part(found[host.name], event.report)
                        missing -= event.last
        return [found[host.name] for host in self.hosts]

    def close(self) -> None:
        """End the session, and drop the engines."""
        with suppress(OSError, NotMeasured):
            for host in self.hosts:
                host.leave()
            until = time.monotonic() + CLOSING
            while any(host.serves for host in self.hosts):
                self.turn(until)
        self.hosts.clear()


@contextmanager
def engine_pair(
    configs: Sequence[EngineConfig], arena_bytes: int, until: float, *, keyed: bool
) -> Iterator[EnginePair]:
    """Engines with an open session. With `keyed`, datagrams have checksums or are encrypted.

    Raises: BadConfig; another DlcpError or OSError where the machine has no room for them.
    """
    with _memory_freed(), ExitStack() as stack:
        hosts = []
        for config in configs:
            hosts.append(EngineHost(config))
            stack.callback(hosts[-1].close)
        stack.enter_context(_collected_as_in_an_engine())
        pair = EnginePair(hosts)
        stack.callback(pair.close)
        pair.open(arena_bytes, until, keyed=keyed)
        yield pair


def _token(receiver: int, sender: int) -> int:
    return 0x5EC0_0000_0000_0000 | receiver << 16 | sender


@contextmanager
def _collected_as_in_an_engine() -> Iterator[None]:
    """Garbage collection is that of an engine's process meanwhile."""
    thresholds = gc.get_threshold()
    keep_warm()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@contextmanager
def _memory_freed() -> Iterator[None]:
    """Arenas are unmapped at the end, so that they do not disturb the next measurement. After an
    error its traceback uses them: they are unmapped later."""
    gc.collect()
    yield
    gc.collect()
    until = time.monotonic() + CLOSING
    for thread in threading.enumerate():
        if thread.name == "unmapping":
            thread.join(max(until - time.monotonic(), 0.0))
