"""A training process: it joins jobs, reduces gradients and says how each operation ended.

It forks from a server that has imported torch, so a new one takes a moment. What it contributes
tells from the sum alone whose part of which element arrived (dlcp_lab.ranks.digits).
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C._distributed_c10d import FileStore  # torch.distributed re-exports it untyped

import dlcp_client
from dlcp_lab.faults.processes import ended
from dlcp_lab.ranks import digits, reference
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.policy import LossPolicy, bounded, exact

CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["dlcp_lab.faults.trainer"])
# Large arrays come straight from the kernel: a heap that goes to pieces would hide a leak.
STRAIGHT: Final = ("MALLOC_MMAP_THRESHOLD_", "65536")
RESULT: Final = "result"  # how an operation ends well; else it is the code of an error
DEAD: Final = "dead"  # the trainer is gone
WRONG: Final = "wrong result"  # a promise is broken
ARENA: Final = 64 << 20  # bytes
MAX_LOSS: Final = 0.05  # of bounded operations

Outcome = dict[str, Any]  # code, text, at (monotonic), and more of a result


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs: its job, and how it reaches its daemon."""

    store: str  # a file that all ranks open
    rank: int
    world: int
    job: str
    socket: str = ""  # of the host's daemon; "": a private one ...
    config: str = ""  # ... with this configuration
    timeout: float = 20.0  # seconds to join


class Rank:
    """The process's side: a session, and what it has delivered since it began."""

    def __init__(self) -> None:
        self._session: dlcp_client.Session | None = None
        self._produced = 0  # bounded operations
        self._delivered: NDArray[np.int64] | None = None  # per rank and element, of those

    def join(self, place: Place) -> Outcome:
        """Connect."""
        store = FileStore(place.store, place.world)
        self._session = dlcp_client.connect(
            store,
            place.rank,
            place.world,
            job=place.job,
            socket=place.socket or None,
            config=place.config or None,
            timeout=place.timeout,
            arena_bytes=ARENA,
        )
        self._produced, self._delivered = 0, None
        return {"daemon": self._session.daemon_pid}

    def reduce(self, number: int, count: int, deadline: float) -> Outcome:
        """One exact all-reduce; its result must equal the reference, bit for bit."""
        session = self._open
        parts = [
            reference.contribution("float32", count, seed=number, rank=rank)
            for rank in range(session.world_size)
        ]
        tensor = torch.from_numpy(parts[session.rank].copy())
        session.all_reduce(tensor, policy=exact(deadline=deadline), schedule="direct").wait()
        answer = reference.all_reduce(parts, "float32", "sum")
        wrong = int(np.count_nonzero(reference.differing(tensor.numpy(), answer)))
        return {"code": WRONG if wrong else RESULT, "text": f"{wrong} elements", **_digest(tensor)}

    def reduce_bounded(self, count: int, deadline: float) -> Outcome:
        """One bounded all-reduce: no sender misses more than the bound."""
        policy = bounded(MAX_LOSS, deadline=deadline)
        tensor = self._units(count, digits.unit(self._open.rank), policy)
        self._produced += 1
        missing = (self._add(tensor) == 0).mean(axis=1)
        code = RESULT if missing.max() <= MAX_LOSS else WRONG
        return {"code": code, "text": f"missing {missing.max():.3f}", **_digest(tensor)}

    def flush(self, count: int, deadline: float) -> Outcome:
        """An exact operation that brings back what was waived: all that was produced must have
        been delivered then."""
        tensor = self._units(count, 0.0, exact(deadline=deadline))
        self._add(tensor)
        assert self._delivered is not None  # noqa: S101  # the line above made it
        wrong = int(np.count_nonzero(self._delivered != self._produced))
        self._produced, self._delivered = 0, None
        return {"code": WRONG if wrong else RESULT, "text": f"{wrong} of digits", **_digest(tensor)}

    def close(self) -> Outcome:
        """Leave the job, if in one."""
        if self._session is not None:
            self._session.close()
            self._session = None
        return {}

    @property
    def _open(self) -> dlcp_client.Session:
        assert self._session is not None  # noqa: S101  # whoever asks has joined
        return self._session

    def _units(self, count: int, value: float, policy: LossPolicy) -> torch.Tensor:
        tensor = torch.full((count,), value)
        self._open.all_reduce(tensor, policy=policy, name="units", schedule="direct").wait()
        return tensor

    def _add(self, tensor: torch.Tensor) -> NDArray[np.int64]:
        arrived = digits.decode(tensor.numpy(), self._open.world_size)
        self._delivered = arrived if self._delivered is None else self._delivered + arrived
        return arrived


def _digest(tensor: torch.Tensor) -> dict[str, str]:
    return {"digest": blake2b(tensor.numpy().data, digest_size=8).hexdigest()}


def serve(connection: Connection, log: str) -> None:
    """The process: does what it is told, until nobody tells it any more."""
    _write_to(log)
    torch.set_num_threads(1)
    os.environ["DLCPD_SHARE"] = "0"
    rank = Rank()
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_outcome(getattr(rank, name), arguments))


def _outcome(call: Callable[..., Outcome], arguments: dict[str, Any]) -> Outcome:
    outcome: Outcome = {"code": RESULT, "text": ""}
    try:
        outcome |= call(**arguments)
    except DlcpError as exc:
        outcome |= {"code": exc.code, "text": str(exc)}
    return outcome | {"at": time.monotonic()}


def _write_to(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout.flush()


def _start_server() -> None:
    """What trainers fork from. It inherits os.environ as it is when the first one is made."""
    os.environ.setdefault(*STRAIGHT)
    before = dict(os.environ)
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYTHONSAFEPATH"] = "1"  # as -P: multiprocessing makes the command line
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONSAFEPATH"]
        os.environ.update(before)


class Trainer:
    """The process as whoever started it sees it."""

    def __init__(self, log: Path) -> None:
        _start_server()
        ours, theirs = CONTEXT.Pipe()
        self._connection = ours
        self._process = CONTEXT.Process(target=serve, args=(theirs, str(log)), daemon=True)
        self._process.start()
        theirs.close()
        assert self._process.pid is not None  # noqa: S101  # it has started
        self.pid: Final = self._process.pid

    def ask(self, name: str, **arguments: Any) -> None:
        """Have it do something; a dead one does nothing."""
        try:
            self._connection.send((name, arguments))
        except OSError:
            return

    def answer(self, timeout: float) -> Outcome:
        """How what was asked ended. Raises: TimeoutError."""
        if not self._connection.poll(timeout):
            raise TimeoutError(f"trainer {self.pid} did not answer within {timeout:g} s")
        try:
            outcome: Outcome = self._connection.recv()
        except (EOFError, OSError):
            return {"code": DEAD, "text": "", "at": time.monotonic()}
        return outcome

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not ended(self.pid)

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        """Likewise, and forget it."""
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()
