"""Writes a program: numbers the transfers per peer, and leaves out empty ones."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.sized_cache import SizedCache
from dlcpd.schedules.model import (
    NOT_REPLICATED,
    Buffer,
    Compute,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
)

Steps = tuple[int, ...]  # positions in the program; none for a step without bytes
LONGEST: Final = 4 << 20  # bytes of one transfer: its bitmap has a bit for each of its segments
# Cached programs of all builders, limited by steps of some 540 B each: 35 MB, enough for 64
# buckets of 25 MB on 256 ranks
PROGRAMS: Final = SizedCache(most=1 << 16, size=lambda program: len(program.steps) + 1)


@dataclass(slots=True)
class Draft:
    """Steps of one rank. Both ranks of a pair must write their transfers in the same order.

    Every method that adds steps returns their positions, for the `after` of later steps.
    """

    rank: int
    world: int
    _steps: list[Step] = field(default_factory=list)
    _scratch: list[int] = field(default_factory=list)
    _sent: dict[int, int] = field(default_factory=dict)  # transfers so far, by peer
    _received: dict[int, int] = field(default_factory=dict)

    @property
    def others(self) -> tuple[int, ...]:
        """All other ranks, the next one first: not all send to one receiver at once."""
        return tuple((self.rank + k) % self.world for k in range(1, self.world))

    def scratch(self, size: int) -> Span:
        """The span of a new scratch buffer. Size 0: an empty span, and no buffer."""
        if not size:
            return Span(Buffer.SCRATCH, 0, 0)
        self._scratch.append(size)
        return Span(Buffer.SCRATCH + len(self._scratch) - 1, 0, size)

    def send(
        self,
        peer: int,
        span: Span,
        *,
        after: Steps = (),
        lossy: bool = False,
        origin: int | None = None,
    ) -> Steps:
        """Send a span in transfers of at most LONGEST bytes. `origin`: its place in the
        operation's tensor, if that is not its place in INPUT or OUTPUT."""
        steps: Steps = ()
        for part in cut(span, LONGEST):
            index = self._sent.get(peer, 0)
            self._sent[peer] = index + 1
            at = _origin(span, origin) + part.start - span.start
            steps += self._add(Send(peer, index, part, after, lossy, at))
        return steps

    def receive(  # noqa: PLR0913  # all but two by keyword
        self,
        peer: int,
        span: Span,
        *,
        after: Steps = (),
        lossy: bool = False,
        origin: int | None = None,
        implies: Steps = (),
        piece: int = NOT_REPLICATED,
    ) -> Steps:
        """The other end of `send`. Only a span of one transfer is a `piece`."""
        steps: Steps = ()
        for part in cut(span, LONGEST):
            index = self._received.get(peer, 0)
            self._received[peer] = index + 1
            at = _origin(span, origin) + part.start - span.start
            number = piece if part == span else NOT_REPLICATED
            steps += self._add(Receive(peer, index, part, after, lossy, at, implies, number))
        return steps

    def reduce(
        self,
        target: Span,
        operands: tuple[Span, ...],
        *,
        after: Steps = (),
        last: bool = False,
        piece: int = NOT_REPLICATED,
        halvings: int = 0,
    ) -> Steps:
        if not target.size:
            return ()
        return self._add(Reduce(target, operands, after, last, piece, halvings))

    def compute(self, start: int, size: int, *, after: Steps, piece: int) -> Steps:
        """The client computes bytes [start, start + size) of OUTPUT from the same ones of INPUT."""
        if not size:
            return ()
        return self._add(Compute(of_output(start, size), of_input(start, size), after, piece))

    def copy(
        self, target: Span, source: Span, *, after: Steps = (), piece: int = NOT_REPLICATED
    ) -> Steps:
        return self.reduce(target, (source,), after=after, piece=piece)

    def reduce_from_all(
        self,
        target: Span,
        own: Span,
        *,
        after: Steps = (),
        lossy: bool = False,
        piece: int = NOT_REPLICATED,
    ) -> Steps:
        """Receive the contributions of all other ranks, and reduce all in the order of ranks.

        `after`: steps after which `own` may be read and `target` written.
        """
        parts = {peer: self.scratch(own.size) for peer in self.others} | {self.rank: own}
        for peer in reversed(self.others):  # the rank before sends to this one first
            after += self.receive(peer, parts[peer], lossy=lossy, origin=own.start)
        operands = tuple(parts[rank] for rank in range(self.world))
        return self.reduce(target, operands, after=after, last=True, piece=piece)

    def program(self, *also: int) -> Program:
        """The program as written. Its peers are those of its transfers, and `also`."""
        peers = frozenset({*self._sent, *self._received, *also})
        return Program(tuple(self._steps), peers, tuple(self._scratch))

    def _add(self, step: Step) -> Steps:
        self._steps.append(step)
        return (len(self._steps) - 1,)


def _origin(span: Span, origin: int | None) -> int:
    if origin is not None:
        return origin
    return span.start if span.buffer < Buffer.SCRATCH else 0


def of_input(start: int, size: int) -> Span:
    """A span of INPUT."""
    return Span(Buffer.INPUT, start, size)


def of_output(start: int, size: int) -> Span:
    """A span of OUTPUT."""
    return Span(Buffer.OUTPUT, start, size)


def cut(span: Span, chunk_bytes: int) -> tuple[Span, ...]:
    """The chunks of a span, of which the last may be shorter; none if the span is empty."""
    stop = span.start + span.size
    return tuple(
        Span(span.buffer, start, min(chunk_bytes, stop - start))
        for start in range(span.start, stop, chunk_bytes)
    )
