"""Writes the ledger of one session on one engine: losses and digests of every named reduction.

A ledger must not harm a training: a failed write ends the ledger, and is reported once.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dlcpd import __version__
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.recording import Losses, Missing
from dlcpd.collectives.order import Group, Order
from dlcpd.contract.collectives import Share
from dlcpd.contract.errors import BadLedger
from dlcpd.contract.messages import MAX_OPERATION, Submit
from dlcpd.core.wire.datagram import Bytes
from dlcpd.ledger import records
from dlcpd.ledger.chunks import chunks, digests
from dlcpd.ledger.frames import frame
from dlcpd.ledger.generations import Generations
from dlcpd.ledger.masks import pack, pack_paths
from dlcpd.numerics.elements import view
from dlcpd.numerics.residual import Hole
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import Choice
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import TYPICAL

MAX_TURNS: Final = 1 << 16  # names that are counted, ~10 MB; the longest unused restarts at 0
MAX_JOB: Final = 64  # characters of a folder's name
WIDE: Final = 8  # bytes of a float64
_KEY: Final = b"dlcpd ledger"


@dataclass(frozen=True, slots=True)
class About:
    """The session of a ledger."""

    job: str
    session: int
    rank: int
    engine: int
    engines: int
    ranks: list[records.Rank]

    @property
    def folder(self) -> str:
        """Name of the ledger's folder: no name of a job can place it elsewhere."""
        job = re.sub(r"[^A-Za-z0-9_.-]", "_", self.job)[:MAX_JOB].lstrip(".") or "job"
        return f"{job}-rank{self.rank}-engine{self.engine}-{self.session:x}"


def mark(token: int) -> str:
    """Digest that shows that two ledgers have the same token of a session, but not the token."""
    return blake2b(token.to_bytes(8, "little"), digest_size=6, key=_KEY).hexdigest()


class Recorder:
    """`told(text)` is called once with the reason if the ledger ends before its session."""

    def __init__(
        self,
        about: About,
        folder: Path,
        *,
        most: int,
        inputs: bool,
        accounts: Accounts,
        told: Callable[[str], None],
    ) -> None:
        self.inputs, self._about, self._accounts, self._told = inputs, about, accounts, told
        self._open: dict[int, Sequence[Hole]] = {}  # by ticket: reapplied by open operations
        self._turns: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._plans = 0
        self._known: set[int] = set()  # plans that the present generation has
        self._files: Generations | None = None
        try:
            self._files = Generations(folder / about.folder, most)
            self._begin_generation(self._files)
        except (OSError, BadLedger) as exc:
            self._stop(exc)

    def plan(  # noqa: PLR0917  # everything that a replay needs
        self, ask: Submit, group: Group, task: Task, choice: Choice, place: Place, share: Share
    ) -> records.Plan:
        """Values that operations of equal requests have in common, with a new number."""
        self._plans = (self._plans + 1) % records.MAX_PLANS
        host = {rank: number for number, ranks in enumerate(place.hosts) for rank in ranks}
        members = [records.HostRow(m, host[at]) for at, m in enumerate(group.members)]
        return records.Plan(
            self._plans,
            ask.name,
            ask.collective,
            choice.name,
            f"{choice.fingerprint:016x}",
            task.size,
            list(task.sizes),
            int(task.lossy),
            ask.dtype,
            ask.reduce,
            ask.max_loss,
            group.number,
            members,
            place.chunk_bytes,
            share.number,
            share.of,
            ask.codec,
            place.network.capacities if place.network is not None else [],
            place.round_trip,
            int(task.computes),
            place.network.costs if place.network is not None else TYPICAL,
        )

    def recording(self, order: Order, plan: records.Plan, program: Program) -> "OperationRecording":
        """Recording of an operation that is about to begin."""
        return OperationRecording(self, order, plan, program, self._turn(order))

    def close(self) -> None:
        """Close the files; the session is over."""
        if self._files is not None:
            self._files.close()
        self._files = None

    def inherited(self) -> None:
        """Residuals of an earlier session were taken over, whose tickets are not valid in this
        one: those of each name get a ticket that no operation has."""
        residuals = self._accounts.residuals
        for number, key in enumerate(list(residuals)):
            source = MAX_OPERATION - number
            residuals.put(key, [replace(hole, source=source) for hole in residuals.take(key)])
        if self._files is None:
            return
        try:
            for hole in residuals.holes():
                if not hole.coded:
                    self._files.append(frame(_kept(hole)))
        except (OSError, BadLedger) as exc:
            self._stop(exc)

    # --- from recordings ------------------------------------------------------------------

    def store(self, ticket: int, tensor: Bytes, order: Order, program: Program) -> None:
        """Keep the part of a contribution that a program reads."""
        parts = chunks(program).read
        if self._files is None or not parts:
            return
        values = view(tensor[parts[0].start : max(part.stop for part in parts)], order.dtype)
        try:
            self._files.store(ticket, values)
        except OSError as exc:
            self._stop(exc)

    def began(self, ticket: int, reapplied: Sequence[Hole]) -> None:
        """An operation has reapplied these: no other place holds them until it ends."""
        self._open[ticket] = reapplied

    def forget(self, ticket: int) -> None:
        """An operation never began: no peer knows of it."""
        self._open.pop(ticket, None)

    def ended(self, plan: records.Plan, ended: records.Ended) -> None:
        """Write the outcome of an operation."""
        self._open.pop(ended.ticket, None)
        files = self._files
        if files is None:
            return
        try:
            if plan.plan not in self._known:
                self._known.add(plan.plan)
                files.append(frame(plan))
            files.append(frame(ended))
            if files.full:
                self._begin_generation(files)
        except (OSError, BadLedger) as exc:
            self._stop(exc)

    # --- generations -------------------------------------------------------------------------

    def _begin_generation(self, files: Generations) -> None:
        files.begin()
        self._known.clear()
        waiting = [*(hole for holes in self._open.values() for hole in holes)]
        waiting += self._accounts.residuals.holes()
        waiting = [hole for hole in waiting if not hole.coded]
        whole = sum(hole.values.nbytes for hole in waiting) <= files.share // 2
        about = self._about
        opening = records.Opening(
            records.VERSION,
            __version__,
            about.job,
            about.session,
            about.rank,
            about.engine,
            about.engines,
            files.number,
            int(whole),
            about.ranks,
        )
        files.append(frame(opening))
        for hole in waiting if whole else ():
            files.append(frame(_kept(hole)))

    def _turn(self, order: Order) -> int:
        key = order.group.number, order.loss.name
        turn = self._turns.pop(key, -1) + 1
        self._turns[key] = turn
        if len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
        return turn

    def _stop(self, why: OSError | BadLedger) -> None:
        self.close()
        self._told(f"the ledger {self._about.folder} ends here: {why}")


@dataclass(slots=True)
class OperationRecording:
    """Implements collectives.loss.recording.Recording."""

    recorder: Recorder
    order: Order
    plan: records.Plan
    program: Program
    turn: int
    _contributed: bytes = b""
    _reapplied: list[int] = field(default_factory=list)

    def begin(self, tensor: Bytes) -> None:
        if self.recorder.inputs:
            self.recorder.store(self.order.ticket, tensor, self.order, self.program)

    def contribute(self, tensor: Bytes, reapplied: Sequence[Hole]) -> None:
        self.recorder.began(self.order.ticket, reapplied)
        self._reapplied = list(dict.fromkeys(hole.source for hole in reapplied))
        self._contributed = digests(tensor, chunks(self.program).read)

    def end(self, number: int, output: Bytes, losses: Losses) -> None:
        result = digests(output, chunks(self.program).written)
        self._end(number, result, losses, done=True)

    def fail(self, number: int) -> None:
        if number:
            self._end(number, b"", Losses(), done=False)
        else:
            self.recorder.forget(self.order.ticket)

    def _end(self, number: int, result: bytes, losses: Losses, *, done: bool) -> None:
        ended = records.Ended(
            self.plan.plan,
            self.order.ticket,
            number,
            self.turn,
            int(done),
            self.order.loss.scale,
            self._reapplied,
            _rows(losses.waived),
            _rows(losses.lost),
            self._contributed,
            result,
        )
        self.recorder.ended(self.plan, ended)


def _rows(found: Iterable[Missing]) -> list[records.MissingRow]:
    return [
        records.MissingRow(
            one.peer,
            one.transfer,
            one.out_of,
            one.segment_size,
            pack(one.segments, one.out_of),
            pack_paths(one.paths),
        )
        for one in found
    ]


def _kept(hole: Hole) -> records.Kept:
    out_of = int(hole.segments[-1]) + 1  # as many as the mask needs
    return records.Kept(
        hole.source,
        hole.start,
        hole.segment_size,
        out_of,
        hole.scale,
        pack(hole.segments, out_of),
        hole.values.tobytes(),
        int(hole.values.itemsize == WIDE),
    )
