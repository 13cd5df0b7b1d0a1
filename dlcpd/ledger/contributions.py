"""Contributions of one rank to its operations: its inputs, and the residuals added to them."""

from dataclasses import dataclass, field

import numpy as np

from dlcpd.contract.errors import BadLedger
from dlcpd.core.transfer.packetizer import segment_count
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.ledger.chunks import chunks
from dlcpd.ledger.inputs import Inputs
from dlcpd.ledger.masks import unpack_untrusted
from dlcpd.ledger.reader import Entry, Ledger
from dlcpd.ledger.records import Kept, MissingRow, Plan, ranks_of
from dlcpd.numerics.elements import COMPLEX, STORAGE, wide
from dlcpd.numerics.residual import Hole, cut
from dlcpd.numerics.returning import add_back, share_of_range
from dlcpd.schedules.model import Program, Receive, Send


@dataclass(slots=True)
class Contributions:
    """Contributions of one rank. An operation comes after those whose residuals it reapplies."""

    ledger: Ledger
    inputs: Inputs
    _holes: dict[int, list[Hole]] = field(default_factory=dict)  # by ticket of their operation

    def __post_init__(self) -> None:
        for kept in self.ledger.kept:
            self._holes.setdefault(kept.source, []).append(_hole(kept))

    def make(self, entry: Entry, program: Program) -> Bytes | None:
        """The rank's contribution to an operation, whose residual is kept for later ones.

        None if it reapplied a residual that is no longer in the ledger. Raises: BadLedger.
        """
        plan, ended = entry
        if not all(source in self._holes for source in ended.reapplied):
            return None
        tensor = self.inputs(self.ledger, entry, chunks(program).read)
        reapplied = [hole for source in ended.reapplied for hole in self._holes.pop(source)]
        for hole in reapplied:
            _check_fits(hole, plan)
        left = add_back(
            tensor,
            reapplied,
            plan.dtype,
            ended.scale,
            source=ended.ticket,
            most=share_of_range(plan.dtype, plan.reduce, len(plan.members)),
        )
        left += [self._cut(entry, program, tensor, row) for row in ended.waived]
        if left:
            self._holes[ended.ticket] = left
        return tensor

    def _cut(self, entry: Entry, program: Program, tensor: Bytes, row: MissingRow) -> Hole:
        step = step_of(entry, program, row, sent=True)
        payload = tensor[step.span.start : step.span.start + step.span.size]
        segments = segments_of(row, step)
        return cut(
            payload,
            step.origin,
            segments,
            row.segment_size,
            entry.plan.dtype,
            scale=entry.ended.scale,
            source=entry.ended.ticket,
        )


def step_of(entry: Entry, program: Program, row: MissingRow, *, sent: bool) -> Send | Receive:
    """The transfer of which segments are missing. Raises: BadLedger if there is none."""
    members = ranks_of(entry.plan)
    place = members.index(row.peer) if row.peer in members else -1
    position = (program.sends if sent else program.receives).get((place, row.transfer))
    step = None if position is None else program.steps[position]
    if not isinstance(step, Send | Receive) or not step.lossy:
        raise BadLedger(
            f"operation {entry.ended.number}: its schedule has no transfer {row.transfer} with "
            f"rank {row.peer} that may lose anything"
        )
    return step


def segments_of(row: MissingRow, step: Send | Receive) -> Segments:
    """The missing segments of a transfer. Raises: BadLedger."""
    size = row.segment_size
    if size < 1 or row.out_of != segment_count(step.span.size, size):
        raise BadLedger(f"{row.out_of} segments of {size} B are not {step.span.size} B")
    return unpack_untrusted(row.mask, row.out_of)


def _hole(kept: Kept) -> Hole:
    """The hole that a record holds. Raises: BadLedger."""
    segments = unpack_untrusted(kept.mask, kept.out_of)
    kind = np.float64 if kept.wide else np.float32
    if not len(segments) or not kept.values or len(kept.values) % np.dtype(kind).itemsize:
        raise BadLedger(f"{len(kept.values)} B of residual for {len(segments)} segments")
    values = np.frombuffer(kept.values, kind)
    return Hole(kept.start, segments, kept.segment_size, values, kept.scale, kept.source)


def _check_fits(hole: Hole, plan: Plan) -> None:
    """Raises: BadLedger if a hole does not fit a tensor of the plan."""
    item = STORAGE[plan.dtype].itemsize if plan.dtype not in COMPLEX else wide(plan.dtype).itemsize
    per, last = hole.segment_size // item, int(hole.segments[-1])
    short = len(hole.segments) * per - len(hole.values)
    stop = hole.start // item + (last + 1) * per - short
    whole = hole.start % item or hole.segment_size % item or hole.values.dtype != wide(plan.dtype)
    if whole or not 0 <= short < per or stop * item > plan.size:
        raise BadLedger(
            f"{len(hole.values)} values of residual for {len(hole.segments)} segments of "
            f"{hole.segment_size} B do not fit {plan.size} B of {plan.dtype}"
        )
