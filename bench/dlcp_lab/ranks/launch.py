"""Rank processes, one per host: started, synchronised, their results collected, always ended.

Each rank has one stream socket to this process, with lines of JSON, see dlcp_lab.ranks.rank.
Barriers do not use the network under test: on a lossy switch a TCP barrier would add its own
retransmission timeouts to the time of the operation.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dlcp_lab.emulation.patience import patience
from dlcp_lab.ranks.hosts import Host, Hosts
from dlcp_lab.ranks.processes import Child, start
from dlcpd.contract.errors import (
    BadMessage,
    DeadlineExceeded,
    DlcpError,
    OperationAborted,
    PeerLost,
    SessionClosed,
    error_for,
)

FIRST_ERROR_WAIT: Final = 3.0  # seconds; after about one the peers' errors name the dead rank
START_DELAY: Final = 300e-6  # seconds from the last arrival at a barrier to the common start
MAX_LINE: Final = 64 << 20  # bytes of one message; results carry every sample

CONSEQUENCES: Final = (PeerLost, OperationAborted, SessionClosed)  # of another rank's error


class RankFailed(DlcpError):
    """A rank process ended without a result."""

    code = "rank_failed"


@dataclass(frozen=True, slots=True)
class Work:
    """Work of the ranks: a module, whose `run` gets a Conductor and JSON arguments."""

    module: str
    arguments: dict[str, Any]
    timeout: float  # seconds for everything on an idle machine, importing torch included
    environ: Mapping[str, str] = field(default_factory=dict)  # for all ranks


@dataclass(slots=True, eq=False)
class Rank:
    """One running rank, seen from the launcher."""

    number: int
    host: Host
    child: Child
    socket: socket.socket
    at: str = ""  # the barrier at which it waits
    result: Any = None
    ended: bool = False  # gave a result or an error
    error: DlcpError | None = None
    failed_at: float = 0.0
    _unread: bytearray = field(default_factory=bytearray)

    def messages(self) -> list[list[Any]]:
        """Messages that have arrived. An end without a result becomes an error message."""
        data = self.socket.recv(1 << 20)
        self._unread += data
        if len(self._unread) > MAX_LINE:
            raise BadMessage(f"rank {self.number} printed a line of more than {MAX_LINE} B")
        *lines, rest = bytes(self._unread).split(b"\n")
        self._unread = bytearray(rest)
        found = [json.loads(line) for line in lines]
        if not data and not self.ended:
            with suppress(subprocess.TimeoutExpired):  # a busy machine ends it later
                self.child.process.wait(patience(FIRST_ERROR_WAIT))
            found.append(["error", RankFailed.code, self.child.how_it_ended()])
        return found


Arrival = Callable[[str, Sequence[Rank]], None]


def run(
    hosts: Hosts,
    work: Work,
    *,
    progress: Callable[[str], None],
    at_barrier: "Arrival" = lambda *_: None,
) -> list[Any]:
    """Run one rank per host; returns their results in rank order.

    `progress` gets rank 0's lines; `at_barrier` gets the barrier's name and the ranks while all of
    them wait there.

    Raises: the error of the rank that failed first, with its number; DeadlineExceeded.
    """
    with ExitStack() as stack:
        ranks = [_begin(stack, hosts, number, work) for number in range(len(hosts.members))]
        deadline = time.monotonic() + patience(work.timeout)
        return _Watch(hosts, ranks, progress, at_barrier).until(deadline)


def _begin(stack: ExitStack, hosts: Hosts, number: int, work: Work) -> Rank:
    host = hosts.members[number]
    parent_end, rank_end = socket.socketpair()
    stack.callback(parent_end.close)
    with rank_end:
        child = start(
            "dlcp_lab.ranks.rank",
            "--fd",
            str(rank_end.fileno()),
            name=f"rank {number} on {host.plan.name}",
            log=host.folder / f"rank{number}.log",
            environ={**os.environ, **_place(hosts, number), **work.environ},
            place=host.plan.place,
            pass_fds=[rank_end.fileno()],
        )
    stack.callback(child.stop, signal.SIGKILL)
    task = {"module": work.module, "arguments": work.arguments}
    parent_end.sendall(json.dumps(task).encode() + b"\n")
    return Rank(number, host, child, parent_end)


def _place(hosts: Hosts, number: int) -> dict[str, str]:
    """The environment that torchrun would give this rank, and where its daemon listens."""
    host, world = hosts.members[number], str(len(hosts.members))
    return {
        "RANK": str(number),
        "WORLD_SIZE": world,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(number),
        "MASTER_ADDR": hosts.members[0].plan.addresses[0],
        "OMP_NUM_THREADS": "1",  # as torchrun sets it: ranks share the cores
        "GLOO_SOCKET_IFNAME": host.plan.interface,
        "DLCPD_SOCKET": host.socket,
        "DLCPCTL_STORE": str(hosts.folder / "store"),
    }


@dataclass(slots=True, eq=False)
class _Watch:
    """Serves the ranks until all have ended."""

    hosts: Hosts
    ranks: Sequence[Rank]
    progress: Callable[[str], None]
    at_barrier: Arrival
    failed_at: float | None = None

    def until(self, deadline: float) -> list[Any]:
        """Results in rank order. Raises: the error that caused the others; DeadlineExceeded."""
        with selectors.DefaultSelector() as selector:
            for rank in self.ranks:
                selector.register(rank.socket, selectors.EVENT_READ, rank)
            while not all(rank.ended for rank in self.ranks):
                left = self._limit(deadline) - time.monotonic()
                if left <= 0:
                    break
                for key, _ in selector.select(min(left, 1.0)):
                    self._serve(key.data)
                    if key.data.ended:
                        selector.unregister(key.fileobj)
        self._raise_error()
        return [rank.result for rank in self.ranks]

    def _limit(self, deadline: float) -> float:
        """The deadline; after a first error, FIRST_ERROR_WAIT for the errors of other ranks."""
        return deadline if self.failed_at is None else self.failed_at + FIRST_ERROR_WAIT

    def _serve(self, rank: Rank) -> None:
        for kind, *values in rank.messages():
            if kind == "progress" and rank.number == 0:
                self.progress(*values)
            elif kind == "arrived":
                rank.at = values[0]
                self._start_if_all_wait()
            elif kind == "result":
                rank.result, rank.ended = values[0], True
            elif kind == "error":
                rank.error, rank.ended = error_for(*values), True
                rank.failed_at = time.monotonic()
                self.failed_at = self.failed_at or rank.failed_at

    def _start_if_all_wait(self) -> None:
        if any(not rank.at for rank in self.ranks):
            return
        self.at_barrier(self.ranks[0].at, self.ranks)
        go = f"{time.monotonic() + START_DELAY!r}\n".encode()
        for rank in self.ranks:
            rank.at = ""
        for rank in self.ranks:
            rank.socket.sendall(go)

    def _raise_error(self) -> None:
        failed = [rank for rank in self.ranks if rank.error]
        if failed:
            self.hosts.raise_if_ended()  # which would be the cause of the ranks' errors
            raise _named(min(failed, key=_blame))
        missing = [str(rank.number) for rank in self.ranks if not rank.ended]
        if missing:
            self.hosts.raise_if_ended()
            raise DeadlineExceeded(f"rank(s) {', '.join(missing)} did not end in time")


def _blame(rank: Rank) -> tuple[int, float]:
    """Sort key: causes before their consequences on other ranks, then by time."""
    kind = type(rank.error)
    return (2 if kind in CONSEQUENCES else 1 if kind is RankFailed else 0, rank.failed_at)


def _named(rank: Rank) -> DlcpError:
    assert rank.error is not None  # noqa: S101  # checked by the caller
    if isinstance(rank.error, RankFailed):
        return rank.error  # its text names the rank
    return error_for(rank.error.code, f"rank {rank.number} on {rank.host.plan.name}: {rank.error}")
