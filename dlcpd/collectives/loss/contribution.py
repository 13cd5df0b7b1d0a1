"""The contribution of this rank to one operation, from its residuals to its record in a ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.bounded import Bounded
from dlcpd.collectives.loss.encoded import Encoded
from dlcpd.collectives.loss.recording import Losses, Recording
from dlcpd.collectives.order import Order
from dlcpd.schedules.model import Buffer, Encode, Program, Send


@dataclass(slots=True, eq=False)
class Contribution:
    """Prepares the contribution before it is sent, and keeps its residual afterwards."""

    order: Order
    buffers: Buffers
    accounts: Accounts  # of the session
    recording: Recording | None  # if a ledger is kept
    loss: Bounded | None = None  # if anything may be lost, rounded or brought back
    segment_sizes: Mapping[int, int] = field(default_factory=dict)  # by receiver, as measured with
    prepared: bool = False

    @property
    def encoded(self) -> Encoded | None:
        """The codec of contributions and results, or of results alone; None: there is none."""
        if self.order.codec is None:
            return None
        of_both = None if self.loss is None else self.loss.encoded
        return of_both or Encoded.of(self.order, self.accounts.spare)

    def prepare(self, program: Program, segment_sizes: Mapping[int, int]) -> Iterator[int]:
        """Reapply residuals, encode the contribution, and measure the segments that may be lost.

        Yields the bytes of each piece of work. Another call with other segment sizes only measures
        again.
        """
        self.segment_sizes, tensor = segment_sizes, self.buffers.memory[Buffer.INPUT]
        order, recording, first = self.order, self.recording, not self.prepared
        # an exact operation reapplies residuals, too
        wanted = order.loss.bound or order.encodes or (order.loss.name and self.accounts.residuals)
        if recording is not None and first:
            recording.begin(tensor)
        if wanted and self.loss is None:
            self.loss = Bounded(order, tensor, self.accounts)
        if recording is not None and first:
            recording.contribute(tensor, self.loss.brought_back if self.loss is not None else ())
            yield len(tensor)
        if self.loss is not None and self.loss.encoded is not None and first:
            yield from self._encode(program, self.loss.encoded)
        if self.loss is not None and not order.layers.lossless:
            yield from self._measure(program, self.loss)
        self.prepared = True

    def keep(self, number: int) -> None:
        """The result of operation `number` of its group is complete: keep the residual for the next
        operation of this name, and record the losses."""
        if self.loss is not None:
            self.loss.keep()
        if self.recording is not None:
            losses = self.loss.losses if self.loss is not None else Losses()
            self.recording.end(number, self.buffers.memory[Buffer.OUTPUT], losses)

    def put_back(self, number: int) -> None:
        """The operation failed: keep the reapplied residuals for the next one."""
        if self.loss is not None:
            self.loss.put_back()
        if self.recording is not None:
            self.recording.fail(number)

    def _encode(self, program: Program, encoded: Encoded) -> Iterator[int]:
        """Encode the contribution, which waits for no step."""
        bytes_of = self.buffers.bytes_of
        for step in program.steps:
            if isinstance(step, Encode) and not step.rounds:
                part, wire = bytes_of(step.source), bytes_of(step.target)
                yield from encoded.contribute(part, wire, step.source.start)

    def _measure(self, program: Program, loss: Bounded) -> Iterator[int]:
        steps, members = enumerate(program.steps), self.order.group.members
        sends = [
            (at, step, self.segment_sizes[members[step.peer]])
            for at, step in steps
            if isinstance(step, Send) and step.lossy
        ]
        if (encoded := loss.encoded) is not None:
            bytes_of = self.buffers.bytes_of
            wires = {at: (bytes_of(step.span), step.encodes, size) for at, step, size in sends}
            return loss.measure_wires(encoded, wires)
        return loss.measure({at: (s.origin, s.span.size, size) for at, s, size in sends})
