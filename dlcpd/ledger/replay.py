"""Computes bounded operations again from the ledgers of all ranks, and compares bit for bit.

The schedule is built anew and run by the reference interpreter, with each rank's contribution
(its input, and the reapplied residuals) and without the segments missing at its receivers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from msgspec.structs import replace

from dlcpd.contract.collectives import COLLECTIVES, Shape, Share
from dlcpd.contract.errors import BadLedger, BadPolicy, OutcomeError
from dlcpd.core.wire.datagram import Bytes
from dlcpd.ledger.chunks import LedgerChunk, chunks, digests, first_difference
from dlcpd.ledger.contributions import Contributions, segments_of, step_of
from dlcpd.ledger.inputs import Inputs, recorded
from dlcpd.ledger.masks import unpack_untrusted
from dlcpd.ledger.reader import Entry, Ledger
from dlcpd.ledger.records import MissingRow, Plan, hosts_of, ranks_of
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import BadNetwork, job_network
from dlcpd.schedules.proof.interpreter import interpret


class OperationKey(NamedTuple):
    """An operation, as all its ranks number it."""

    group: int
    number: int

    def __str__(self) -> str:
        return f"operation {self.number}" + (f" of group {self.group}" if self.group else "")


class ReplayVerdict(Enum):
    """Verdict on one operation."""

    REPRODUCED = auto()
    PARTIAL = auto()  # some rank has no result of it in its ledger
    UNKNOWN = auto()  # it reapplies residuals that the ledgers do not have
    CODED = auto()  # it has a codec, whose residuals are in no ledger
    COMPUTED = auto()  # its clients computed the results; contributions and losses are reproduced


class Differs(OutcomeError):
    """An operation differs from its ledgers. The text names operation, chunk and ranks."""

    code = "replay_differs"


@dataclass(slots=True)
class Replayed:
    """Results up to the first operation that differs; `different` names it."""

    waived: int = 0  # segments, in the operations that were reproduced
    verdicts: dict[OperationKey, ReplayVerdict] = field(default_factory=dict)
    different: str = ""

    def of(self, verdict: ReplayVerdict) -> list[OperationKey]:
        """The operations with a verdict, in their order."""
        return [key for key, found in self.verdicts.items() if found is verdict]


def replay(run: Mapping[int, Ledger], inputs: Inputs = recorded) -> Replayed:
    """Compute all operations of a run again, up to the first that differs.

    Raises: BadLedger for a ledger that contradicts itself, or lacks an input.
    """
    found = Replayed()
    contributions = {rank: Contributions(ledger, inputs) for rank, ledger in run.items()}
    for key, entries in operations(run).items():
        operation = _Operation(key, entries)
        try:
            found.verdicts[key] = operation.compute(contributions)
        except Differs as exc:
            found.different = str(exc)
            break
        if found.verdicts[key] is ReplayVerdict.REPRODUCED:
            found.waived += operation.waived
    return found


def operations(run: Mapping[int, Ledger]) -> dict[OperationKey, dict[int, Entry]]:
    """All operations of a run, by rank; each after those whose residuals it reapplies.

    Raises: BadLedger.
    """
    found: dict[OperationKey, dict[int, Entry]] = defaultdict(dict)
    after = TopologicalSorter[OperationKey]()
    for rank, ledger in run.items():
        keys = {e.ended.ticket: OperationKey(e.plan.group, e.ended.number) for e in ledger.entries}
        for entry in ledger.entries:
            key = keys[entry.ended.ticket]
            found[key][rank] = entry
            after.add(key, *(keys[ticket] for ticket in entry.ended.reapplied if ticket in keys))
    try:
        return {key: found[key] for key in after.static_order()}
    except CycleError as exc:
        raise BadLedger("there are operations that bring back what each other waived") from exc


@dataclass(slots=True)
class _Operation:
    """One operation of a run."""

    key: OperationKey
    entries: Mapping[int, Entry]  # by rank, of those that have it in their ledgers

    @property
    def plan(self) -> Plan:
        """The plan, equal on all ranks except for its number."""
        return next(iter(self.entries.values())).plan

    @property
    def waived(self) -> int:
        """Number of waived segments."""
        rows = [row for entry in self.entries.values() for row in entry.ended.waived]
        return sum(len(unpack_untrusted(row.mask, row.out_of)) for row in rows)

    def compute(self, contributions: Mapping[int, Contributions]) -> ReplayVerdict:
        """Update each rank's residual; if all contributions are known, compare the result.

        Raises: Differs, BadLedger.
        """
        members = ranks_of(self.plan)
        self._check_plans()
        if self.plan.codec and not self.plan.computes:
            return ReplayVerdict.CODED
        programs = {rank: program_of(self.plan, place) for place, rank in enumerate(members)}
        made = dict[int, Bytes | None]()
        for rank, entry in self.entries.items():
            if rank not in programs:
                raise BadLedger(f"{self}: rank {rank} has it in its ledger, and is no member")
            if entry.ended.done:
                made[rank] = contributions[rank].make(entry, programs[rank])
                self._check_contribution(rank, made[rank], programs[rank])
        if set(made) != set(members):
            return ReplayVerdict.PARTIAL
        inputs = [tensor for rank in members if (tensor := made[rank]) is not None]
        if len(inputs) < len(members):
            return ReplayVerdict.UNKNOWN
        self._check_masks(members, programs)
        if self.plan.computes:
            return ReplayVerdict.COMPUTED
        self._check_results(members, [programs[rank] for rank in members], inputs)
        return ReplayVerdict.REPRODUCED

    def _check_plans(self) -> None:
        plans = {rank: replace(entry.plan, plan=0) for rank, entry in self.entries.items()}
        for rank, plan in plans.items():
            if plan != replace(self.plan, plan=0):
                raise BadLedger(f"{self}: rank {rank} has followed another plan than the others")

    def __str__(self) -> str:
        return f"{self.key} ({self.plan.collective} of {self.plan.name!r})"

    def _check_contribution(self, rank: int, tensor: Bytes | None, program: Program) -> None:
        if tensor is None:
            return
        parts, said = chunks(program).read, self.entries[rank].ended.contributed
        at = first_difference(said, digests(tensor, parts))
        if at is not None:
            raise Differs(
                f"{self}, chunk {at} ({_range(parts[at])}): what rank {rank} sent is not its input "
                f"and what it had waived before"
            )

    def _check_masks(self, members: Sequence[int], programs: Mapping[int, Program]) -> None:
        """Both ends of a transfer must have recorded the same missing segments."""
        for sender in members:
            gave = {(r.peer, r.transfer): r for r in self.entries[sender].ended.waived}
            for receiver in members:
                lost = [r for r in self.entries[receiver].ended.lost if r.peer == sender]
                for row in lost:
                    theirs = gave.pop((receiver, row.transfer), None)
                    self._check_mask(sender, receiver, row, theirs)
            for place in gave:  # waived, and missing at no receiver
                raise self._masks_differ(sender, *place)
        for rank in members:  # rows must be of transfers that exist
            entry = self.entries[rank]
            for row in entry.ended.lost:
                segments_of(row, step_of(entry, programs[rank], row, sent=False))

    def _check_mask(
        self, sender: int, receiver: int, lost: MissingRow, gave: MissingRow | None
    ) -> None:
        same = ("transfer", "out_of", "segment_size", "mask")
        if gave is None or any(getattr(gave, name) != getattr(lost, name) for name in same):
            raise self._masks_differ(sender, receiver, lost.transfer)

    def _masks_differ(self, sender: int, receiver: int, transfer: int) -> Differs:
        return Differs(
            f"{self}, transfer {transfer} from rank {sender} to rank {receiver}: their ledgers do "
            f"not say alike which segments were waived"
        )

    def _check_results(
        self, members: Sequence[int], programs: Sequence[Program], inputs: Sequence[Bytes]
    ) -> None:
        plan = self.plan
        results = interpret(
            programs,
            inputs,
            outputs=[_output_size(plan, at) for at in range(len(members))],
            dtype=plan.dtype,
            op=plan.reduce,
            lost=self._lost(members, programs),
        )
        for place, rank in enumerate(members):
            parts = chunks(programs[place]).written
            said = self.entries[rank].ended.result
            at = first_difference(said, digests(results[place], parts))
            if at is not None:
                raise Differs(
                    f"{self}, chunk {at} ({_range(parts[at])}): the result of rank {rank} is not "
                    f"the sum of what ranks {', '.join(map(str, members))} sent"
                )

    def _lost(
        self, members: Sequence[int], programs: Sequence[Program]
    ) -> dict[tuple[int, int, int], list[slice]]:
        """Bytes of transfers that never arrived, by places of sender and receiver and number."""
        lost = {}
        for place, rank in enumerate(members):
            entry = self.entries[rank]
            for row in entry.ended.lost:
                step = step_of(entry, programs[place], row, sent=False)
                size = row.segment_size
                holes = [slice(s * size, (s + 1) * size) for s in segments_of(row, step).tolist()]
                lost[members.index(row.peer), place, row.transfer] = holes
        return lost


def program_of(plan: Plan, place: int) -> Program:
    """The program of the rank at a place in the plan's group. Raises: BadLedger."""
    task = Task(
        collective=plan.collective,
        size=plan.size,
        sizes=tuple(plan.sizes),
        lossy=bool(plan.lossy),
        codec=plan.codec if plan.computes else "",  # others are not computed again
        item=STORAGE[plan.dtype].itemsize,
        computes=bool(plan.computes),
    )
    try:
        network = job_network([(str(number), told) for number, told in enumerate(plan.network)])
        hosts = hosts_of(plan.members)
        where = Place(place, hosts, plan.chunk_bytes, network, plan.round_trip)
        choice = choose(task, where, plan.schedule, Share(plan.part, plan.parts))
    except (UnknownSchedule, BadNetwork, BadPolicy) as exc:
        raise BadLedger(f"{plan.name!r}: {exc}") from exc
    if f"{choice.fingerprint:016x}" != plan.fingerprint:
        raise BadLedger(
            f"{plan.name!r}: this dlcpd makes another schedule of {plan.schedule!r} than the one "
            f"that was run; replay with the version that wrote the ledger"
        )
    return choice.program


def _output_size(plan: Plan, place: int) -> int:
    return plan.sizes[place] if COLLECTIVES[plan.collective].shape is Shape.OUTPUTS else plan.size


def _range(part: LedgerChunk) -> str:
    return f"bytes {part.start}..{part.stop}"
