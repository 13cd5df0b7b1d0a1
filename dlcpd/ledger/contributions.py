"""What one rank put into its operations: its inputs, and what earlier ones had given up."""

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
from dlcpd.ledger.records import Kept, MissingRow, ranks_of
from dlcpd.numerics.residual import Hole, add_back, cut
from dlcpd.schedules.model import Program, Receive, Send


@dataclass(slots=True)
class Contributions:
    """Of one rank. Operations come in an order in which each follows those that it brings back."""

    ledger: Ledger
    inputs: Inputs
    _holes: dict[int, list[Hole]] = field(default_factory=dict)  # by ticket of who gave them up

    def __post_init__(self) -> None:
        for kept in self.ledger.kept:
            self._holes.setdefault(kept.source, []).append(_hole(kept))

    def make(self, entry: Entry, program: Program) -> Bytes | None:
        """What the rank contributed to an operation, which is also noted as its holes to come.

        None where it brought back what is no longer in the ledger. Raises: BadLedger.
        """
        plan, ended = entry
        if not all(source in self._holes for source in ended.returned):
            return None
        tensor = self.inputs(self.ledger, entry, chunks(program).read)
        for source in ended.returned:
            add_back(tensor, self._holes.pop(source), plan.dtype, ended.scale)
        given_up = [self._cut(entry, program, tensor, row) for row in ended.given_up]
        if given_up:
            self._holes[ended.ticket] = given_up
        return tensor

    def _cut(self, entry: Entry, program: Program, tensor: Bytes, row: MissingRow) -> Hole:
        step = step_of(entry, program, row, sent=True)
        payload = tensor[step.span.start : step.span.start + step.span.size]
        segments = segments_of(row, step)
        return cut(
            payload, step.origin, segments, row.segment_size,
            scale=entry.ended.scale, source=entry.ended.ticket,
        )  # fmt: skip


def step_of(entry: Entry, program: Program, row: MissingRow, *, sent: bool) -> Send | Receive:
    """The transfer of which segments are missing. Raises: BadLedger where there is none."""
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
    """Those that are missing of a transfer. Raises: BadLedger."""
    size = row.segment_size
    if size < 1 or row.out_of != segment_count(step.span.size, size):
        raise BadLedger(f"{row.out_of} segments of {size} B are not {step.span.size} B")
    return unpack_untrusted(row.mask, row.out_of)


def _hole(kept: Kept) -> Hole:
    segments = unpack_untrusted(kept.mask, kept.out_of)
    values = np.frombuffer(kept.values, np.uint8)
    if not len(segments) or not 0 < len(values) <= len(segments) * kept.segment_size:
        raise BadLedger(f"{len(values)} B of residual for {len(segments)} segments")
    return Hole(kept.start, segments, kept.segment_size, values, kept.scale, kept.source)
