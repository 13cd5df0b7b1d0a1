"""Converts a program to one whose transfers are encoded by a codec.

Contributions are encoded when the operation begins. The owner of a sum decodes the parts of the
other ranks, adds them to its own, which is not encoded, and encodes the sum. The sum as decoded
is the result on every rank, the owner included. Where clients compute the results, contributions
and sums are plain, and only the results are encoded. Source of the two stages, each with its own
residual: Tang et al., DoubleSqueeze, ICML 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from dlcpd.contract.collectives import LOSSY
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.model import (
    NOT_REPLICATED,
    Buffer,
    Compute,
    Decode,
    Encode,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
)

# They send parts straight to their owner, and sums straight to all: others would round again at
# every step in between. A forest has trees of one hop then.
CODED: Final = ("direct", "forest")

WireSize = Callable[[int], int]  # bytes of the tensor -> bytes on the wire


def coded_schedule(collective: str, wanted: str) -> str:
    """The schedule of a collective with a codec: `wanted`, or the first of CODED.

    Raises: UnknownSchedule.
    """
    if collective not in LOSSY:
        names = " and ".join(LOSSY)
        raise UnknownSchedule(f"{collective} has no codec, which only {names} can have")
    if wanted not in ("", *CODED):
        names = " or ".join(CODED)
        raise UnknownSchedule(f"{collective} with a codec has the schedule {names}, not {wanted!r}")
    return wanted or CODED[0]


def coded(program: Program, wire_size: WireSize) -> Program:
    """`program`, of a schedule in CODED, with encoded transfers."""
    return _written(_EncodedWriter(program, wire_size))


def gathered(program: Program, wire_size: WireSize) -> Program:
    """`program`, in which clients compute, with encoded results."""
    return _written(_GatheredWriter(program, wire_size))


def _written(writer: "_EncodedWriter") -> Program:
    program = writer.program
    for position, step in enumerate(program.steps):
        writer.write(position, step)
    return Program(tuple(writer.steps), program.peers, tuple(writer.scratch))


@dataclass(slots=True)
class _EncodedWriter:
    """Writes the encoded program step by step."""

    program: Program
    wire_size: WireSize
    steps: list[Step] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    _results: dict[Span, tuple[int, Span]] = field(default_factory=dict)  # its Encode, and wire
    _new: dict[int, int] = field(default_factory=dict)  # by old position: the step that ends it

    def __post_init__(self) -> None:
        self.scratch = list(self.program.scratch)

    def write(self, position: int, step: Step) -> None:
        match step:
            case Send(span=Span(buffer=Buffer.OUTPUT)):
                at, wire = self._results[step.span]
                self._send(position, replace(step, span=wire, after=(at,)), step.span.size)
            case Send():
                wire = self._wire(step.span.size)
                at = self._add(Encode(wire, step.span, self._after(step)))
                self._send(position, replace(step, span=wire, after=(at,)), step.span.size)
            case Receive():
                self._receive(position, step)
            case Reduce():
                self._reduce(position, step)

    def _send(self, position: int, step: Send, encodes: int) -> None:
        self._new[position] = self._add(replace(step, encodes=encodes))

    def _receive(self, position: int, step: Receive) -> None:
        wire = self._wire(step.span.size)
        arriving = replace(
            step,
            span=wire,
            after=(),
            piece=NOT_REPLICATED,
            encodes=step.span.size,
            implies=tuple(self._new[at] for at in step.implies),
        )
        after = (self._add(arriving), *self._after(step))
        decode = Decode(step.span, wire, step.peer, after, step.piece)
        self._new[position] = self._add(decode)

    def _reduce(self, position: int, step: Reduce | Compute) -> None:
        sent = any(isinstance(s, Send) and s.span == step.target for s in self.program.steps)
        piece = NOT_REPLICATED if sent else step.piece
        at = self._new[position] = self._add(replace(step, after=self._after(step), piece=piece))
        if sent:
            wire = self._wire(step.target.size)
            encode = Encode(wire, step.target, (at,), rounds=True, piece=step.piece)
            self._new[position] = self._add(encode)
            self._results[step.target] = self._new[position], wire

    def _plain(self, position: int, step: Step) -> None:
        """The step as it is."""
        if isinstance(step, Receive):
            step = replace(step, implies=tuple(self._new[at] for at in step.implies))
        self._new[position] = self._add(replace(step, after=self._after(step)))

    def _after(self, step: Step) -> tuple[int, ...]:
        return tuple(self._new[at] for at in step.after)

    def _wire(self, size: int) -> Span:
        """A new scratch buffer for `size` bytes of the tensor, encoded."""
        self.scratch.append(self.wire_size(size))
        return Span(Buffer.SCRATCH + len(self.scratch) - 1, 0, self.scratch[-1])

    def _add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1


@dataclass(slots=True)
class _GatheredWriter(_EncodedWriter):
    """Encodes what lies in OUTPUT: results of the client, and of a rank that passes them on."""

    def write(self, position: int, step: Step) -> None:
        match step:
            case Send(span=Span(buffer=Buffer.OUTPUT)):
                at, wire = self._results[step.span]
                self._send(position, replace(step, span=wire, after=(at,)), step.span.size)
            case Receive(span=Span(buffer=Buffer.OUTPUT)):
                self._receive(position, step)
                decoded = self.steps[self._new[position]]
                assert isinstance(decoded, Decode)  # noqa: S101  # see `_receive`
                self._results[step.span] = decoded.after[0], decoded.source
            case Compute():
                self._reduce(position, step)
            case _:
                self._plain(position, step)
