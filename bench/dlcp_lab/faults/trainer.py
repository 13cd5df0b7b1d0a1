"""A training process: it joins jobs, reduces gradients and reports how each operation ended.

It forks from a server that has imported torch, so that it starts fast. From the sum of bounded
operations alone follows which rank's elements arrived (dlcp_lab.ranks.digits).
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
# Map large arrays directly: a fragmented heap would hide a leak.
STRAIGHT: Final = ("MALLOC_MMAP_THRESHOLD_", "65536")
RESULT: Final = "result"  # code of an operation that succeeds; else it is the code of an error
DEAD: Final = "dead"  # the trainer has ended
WRONG: Final = "wrong result"  # a promise is broken
ARENA: Final = 64 << 20  # bytes
MAX_LOSS: Final = 0.05  # of bounded operations

Outcome = dict[str, Any]  # code, text, at (monotonic seconds), and fields of the call


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Place of a rank: its job, and its daemon."""

    store: str  # a file that all ranks open
    rank: int
    world: int
    job: str
    socket: str = ""  # of the host's daemon; "": a private daemon ...
    config: str = ""  # ... with this configuration file
    timeout: float = 20.0  # seconds to join


class TrainerRank:
    """Side of the training process: a session, and counts of its bounded operations."""

    def __init__(self) -> None:
        self._session: dlcp_client.Session | None = None
        self._produced = 0  # bounded operations
        self._delivered: NDArray[np.int64] | None = None  # per rank and element, of those

    def join(self, place: RankPlace) -> Outcome:
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
        """One bounded all-reduce: the missing elements of each sender stay within the bound."""
        policy = bounded(MAX_LOSS, deadline=deadline)
        tensor = self._units(count, digits.unit(self._open.rank), policy)
        self._produced += 1
        missing = (self._add(tensor) == 0).mean(axis=1)
        code = RESULT if missing.max() <= MAX_LOSS else WRONG
        return {"code": code, "text": f"missing {missing.max():.3f}", **_digest(tensor)}

    def flush(self, count: int, deadline: float) -> Outcome:
        """An exact operation that reapplies the residuals: all produced values must have been
        delivered then."""
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
        assert self._session is not None  # noqa: S101  # `join` comes first
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
    """Main loop of the process: run the calls of the Trainer until the connection ends."""
    _write_to(log)
    torch.set_num_threads(1)
    os.environ["DLCPD_SHARE"] = "0"
    rank = TrainerRank()
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
    """Start the server that trainers fork from. It keeps os.environ of its start."""
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
    """A training process, seen from the process that started it."""

    def __init__(self, log: Path) -> None:
        _start_server()
        parent_end, rank_end = CONTEXT.Pipe()
        self._connection = parent_end
        self._process = CONTEXT.Process(target=serve, args=(rank_end, str(log)), daemon=True)
        self._process.start()
        rank_end.close()
        assert self._process.pid is not None  # noqa: S101  # it has started
        self.pid: Final = self._process.pid

    def ask(self, name: str, **arguments: Any) -> None:
        """Send a call to the process; no error if it has ended."""
        try:
            self._connection.send((name, arguments))
        except OSError:
            return

    def answer(self, timeout: float) -> Outcome:
        """Outcome of the call; code DEAD if the process has ended. Raises: TimeoutError."""
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
        """End it at once, and release its resources."""
        self._connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()
