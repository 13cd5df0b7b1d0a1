"""One rank of `dlcpctl verify`: runs the operations and reports results, without verdicts."""

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import dlcp_client
from dlcp_lab.ranks import digits, reference
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import TORCH, as_stored, as_tensor, join_file_store
from dlcp_lab.verify.cases import Case, cases
from dlcpd.contract.policy import LossPolicy
from dlcpd.inspection.report import query
from dlcpd.schedules import catalog
from dlcpd.schedules.layout import layout

IN_FLIGHT: Final = 16  # operations of the sweep at once
ARENA: Final = 1 << 30  # bytes of address space
TAIL: Final = 1234  # elements beyond a whole number of chunks: short shards, short segments
LEDGER: Final = 1000  # rows; the most that a daemon returns
ELEMENT: Final = 4  # bytes of float32
CRITICAL: Final = (0.4, 0.65)  # exempt part of each chunk, large enough to be hit if unprotected
UNITS: Final = "verify/units"
RANDOM: Final = "verify/random"


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, Any]:
    """All results of this rank, as JSON."""
    session = join_file_store(conductor, arena_bytes=ARENA, job="verify")
    try:
        conductor.progress("exact operations against the reference")
        sweep = _Sweep(session, arguments).run()
        steps = None
        if arguments["mode"] == "bounded":
            conductor.progress(f"{arguments['steps']} steps of bounded loss")
            steps = _BoundedSteps(session, arguments).run()
        conductor.barrier()  # peers may still settle segments that this rank's ledger counts
        return {"sweep": sweep, "steps": steps, "books": _books(conductor, session)}
    finally:
        session.close()


def digest(tensor: torch.Tensor) -> str:
    """Digest of the bytes of a result, to be compared between ranks."""
    return blake2b(as_stored(tensor).data, digest_size=8).hexdigest()


def _books(conductor: Conductor, session: Any) -> dict[str, Any]:
    """This rank's totals and its daemon's ledger."""
    report = query(conductor.daemon, LEDGER)["engine"]
    (mine,) = report["sessions"].values()
    return {
        "ledger": mine["ledger"],
        "residual_bytes": mine["residual_bytes"],
        "injected": report["counters"].get("injected_loss", 0),
        "waived": session.ledger.waived,
        "lost": session.ledger.lost,
        "reapplied": session.ledger.reapplied,
        "operations": session.ledger.operations,
    }


class _Sweep:
    """All cases, several in flight; half of them in arena tensors, half in ordinary ones."""

    def __init__(self, session: Any, arguments: dict[str, Any]) -> None:
        self.session, self.seed = session, arguments["seed"]
        self.cases = cases(session.world_size, arguments["chunk_bytes"])
        self.open: deque[tuple[Case, Any]] = deque()
        self.rows: list[list[Any]] = []

    def run(self) -> list[list[Any]]:
        """[case, wrong elements, digest] of each."""
        for case in self.cases:
            if len(self.open) >= IN_FLIGHT:
                self._collect()
            self.open.append((case, self._submit(case)))
        while self.open:
            self._collect()
        return self.rows

    def _part(self, case: Case, rank: int) -> reference.Stored:
        return reference.contribution(
            case.dtype, case.count, seed=self.seed + case.number, rank=rank
        )

    def _submit(self, case: Case) -> Any:
        tensor = as_tensor(self._part(case, self.session.rank), case.dtype)
        if case.number % 2:
            tensor = self.session.empty(case.count, TORCH[case.dtype], wait=10.0).copy_(tensor)
        return self.session.all_reduce(tensor, case.op)

    def _collect(self) -> None:
        case, work = self.open.popleft()
        work.wait()
        parts = [self._part(case, rank) for rank in range(self.session.world_size)]
        answer = reference.all_reduce(parts, case.dtype, case.op)
        wrong = int(np.count_nonzero(reference.differing(as_stored(work.tensor), answer)))
        self.rows.append([str(case), wrong, digest(work.tensor)])


@dataclass(slots=True)
class _Tally:
    """Sums over the steps of one name, as integers, without rounding; kept by rank 0 only."""

    produced: NDArray[np.int64]
    delivered: NDArray[np.int64]
    digests: list[str] = field(default_factory=list)

    @property
    def unbalanced(self) -> int:
        """Number of elements whose delivered and produced sums differ."""
        return int(np.count_nonzero(self.produced != self.delivered))


class _BoundedSteps:
    """Steps of two gradients under a bounded policy, then one exact step that flushes both."""

    def __init__(self, session: Any, arguments: dict[str, Any]) -> None:
        self.session, self.arguments = session, arguments
        self.segment = arguments["segment_size"] // ELEMENT
        self.count = session.world_size * arguments["chunk_bytes"] // ELEMENT + TAIL
        size = self.count * ELEMENT
        alone = tuple((rank,) for rank in range(session.world_size))
        place = catalog.Place(session.rank, alone, arguments["chunk_bytes"])  # on one machine
        chunk_size = catalog.chunk(place, size // session.world_size)
        self.chunks = [
            (chunk.index, chunk.start // ELEMENT, chunk.size // ELEMENT)
            for chunk in layout(size, session.world_size, chunk_size).chunks
        ]
        self.exempt = [
            (ELEMENT * (start + int(low * count)), ELEMENT * (start + int(high * count)))
            for _, start, count in self.chunks
            for low, high in [CRITICAL]
        ]
        self.units = self._tally(session.world_size)
        self.random = self._tally(1)
        # Kept by rank 0 only:
        self.losses: list[list[list[Any]]] = []  # by step
        self.damaged = 0  # exempt elements that did not arrive in their own step

    def _tally(self, rows: int) -> _Tally:
        shape = (rows, self.count)
        return _Tally(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def run(self) -> dict[str, Any]:
        policy = dlcp_client.bounded(self.arguments["max_loss"])
        for step in range(self.arguments["steps"]):
            self._step(step, policy)
        flushed = self._step(self.arguments["steps"], dlcp_client.EXACT, flush=True)
        return {
            "losses": self.losses,
            "damaged": self.damaged,
            "digests": {UNITS: self.units.digests, RANDOM: self.random.digests},
            "unbalanced": {UNITS: self.units.unbalanced, RANDOM: self.random.unbalanced},
            "flushed": flushed,
            "chunks": self.chunks,
        }

    def _step(self, step: int, policy: LossPolicy, *, flush: bool = False) -> int:
        """Reduce both gradients at once. Returns the number of reapplied segments."""
        rank = self.session.rank
        units = torch.full((self.count,), 0.0 if flush else digits.unit(rank))
        works = [
            self._submit(UNITS, units, policy),
            self._submit(RANDOM, torch.from_numpy(self._random(step, rank, flush=flush)), policy),
        ]
        for work in works:
            work.wait()
        for tally, work in zip((self.units, self.random), works, strict=True):
            tally.digests.append(digest(work.tensor))
        if rank == 0:  # the digests show whether the others hold the same
            self._book_units(works[0].tensor, flush=flush)
            self._book_random(works[1].tensor, step, flush=flush)
        return sum(int(work.stats.reapplied) for work in works)

    def _random(self, step: int, rank: int, *, flush: bool) -> NDArray[np.float32]:
        rng = np.random.default_rng([self.arguments["seed"], step, rank])
        high = 1 if flush else 9  # the flush contributes zeros
        whole: NDArray[np.int32] = rng.integers(1 - high, high, self.count, np.int32)
        return whole.astype(np.float32)

    def _submit(self, name: str, tensor: torch.Tensor, policy: LossPolicy) -> Any:
        return self.session.all_reduce(tensor, "sum", policy=policy, name=name, exempt=self.exempt)

    def _book_units(self, result: torch.Tensor, *, flush: bool) -> None:
        arrived = digits.decode(result.numpy(), self.session.world_size)
        self.units.delivered += arrived
        if flush:
            return
        self.units.produced += 1
        found = digits.losses(arrived, self.chunks, self.segment)
        self.losses.append([loss.plain() for loss in found])
        for start, stop in self.exempt:
            span = arrived[:, start // ELEMENT : stop // ELEMENT]
            self.damaged += int(np.count_nonzero(span != 1))

    def _book_random(self, result: torch.Tensor, step: int, *, flush: bool) -> None:
        for rank in range(self.session.world_size):
            self.random.produced[0] += self._random(step, rank, flush=flush).astype(np.int64)
        self.random.delivered[0] += result.numpy().astype(np.int64)
