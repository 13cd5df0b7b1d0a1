"""Random well-formed schedules: transfers, relays and reductions that no collective has.

Steps are drawn one after the other, each over bytes that hold something. It waits for the
steps of its rank that touched its bytes before, where one of the two writes them; that is all
it takes to be free of races and circles.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.model import (
    Buffer,
    Compute,
    Program,
    Receive,
    Reduce,
    Send,
    Span,
    Step,
    Transfer,
)
from tests.numerics.plain import draw_exact

COMPUTATIONS = 0.2  # of all steps, where clients compute
KINDS = (("int32", "sum"), ("uint8", "sum"), ("float32", "sum"), ("bfloat16", "max"))


@dataclass(frozen=True)
class RandomSchedule:
    """Programs, and all that runs and checks them need. Byte arrays and sizes are by rank."""

    programs: list[Program]
    inputs: list[np.ndarray]
    outputs: list[int]
    dtype: str
    op: str


@dataclass
class _Touch:
    """A step that read or wrote a span."""

    span: Span
    position: int
    writes: bool

    def conflicts(self, span: Span, writes: bool) -> bool:
        mine = self.span
        meet = mine.start < span.start + span.size and span.start < mine.start + mine.size
        return mine.buffer == span.buffer and meet and (writes or self.writes)


@dataclass
class _Rank:
    """One rank while its program is drawn."""

    rank: int
    sizes: list[int]  # of its buffers, bytes
    steps: list[Step] = field(default_factory=list)
    touches: list[_Touch] = field(default_factory=list)
    counts: dict[tuple[type, int], int] = field(default_factory=dict)

    def waits_for(self, span: Span, *, writes: bool, but: Iterable[int] = ()) -> set[int]:
        """Steps that must be done before `span` is touched."""
        return {t.position for t in self.touches if t.conflicts(span, writes)} - set(but)

    def add(self, step: Step, reads: Iterable[Span], writes: Iterable[Span]) -> None:
        self.touches += [_Touch(span, len(self.steps), False) for span in reads]
        self.touches += [_Touch(span, len(self.steps), True) for span in writes]
        self.steps.append(step)

    def count(self, kind: type, peer: int) -> int:
        index = self.counts.get((kind, peer), 0)
        self.counts[kind, peer] = index + 1
        return index

    def written(self) -> list[Span]:
        """Spans that hold something."""
        return [Span(Buffer.INPUT, 0, self.sizes[0])] + [
            touch.span for touch in self.touches if touch.writes
        ]


def random_schedule(
    seed: int, world: int, *, steps: int = 30, most: int = 4096, computes: bool = False
) -> RandomSchedule:
    """About `steps` transfers and reductions between `world` ranks, of up to `most` bytes each.

    Equal for equal arguments. Nothing in it is lossy; INPUT and OUTPUT are apart, and every
    byte of OUTPUT is written. `computes`: some steps are those of clients.
    """
    rng = random.Random(seed)
    dtype, op = rng.choice(KINDS)
    item = STORAGE[dtype].itemsize
    ranks = []
    for rank in range(world):
        given = rng.randrange(1, most // item + 1) * item
        scratch = [rng.randrange(1, most // item + 1) * item for _ in range(rng.randrange(3))]
        ranks.append(_Rank(rank, [given, given, *scratch]))
    for _ in range(steps):
        if computes and rng.random() < COMPUTATIONS:
            _computation(rng, rng.choice(ranks), item)
        elif world > 1 and rng.random() < 0.7:
            source, sink = rng.sample(ranks, 2)
            _transfer(rng, source, sink, item)
        else:
            _reduction(rng, rng.choice(ranks), item)
    for state in ranks:
        _fill_output(state, item)
    inputs = [draw_exact(dtype, r.sizes[0] // item, seed + r.rank).view(np.uint8) for r in ranks]
    return RandomSchedule(
        [_program(r) for r in ranks], inputs, [r.sizes[1] for r in ranks], dtype, op
    )


def _transfer(rng: random.Random, source: _Rank, sink: _Rank, item: int) -> None:
    taken = _within(rng, rng.choice(source.written()), item)
    stored = _anywhere(rng, sink, taken.size, item)
    if stored is None:
        return
    taken = Span(taken.buffer, taken.start, stored.size)
    answered = _answered(rng, source, sink)
    # in the sink: Sends to the source; in the source: the Receives of them
    implies, received = tuple(a for a, _ in answered), {b for _, b in answered}
    after = source.waits_for(taken, writes=False) | received
    send = Send(sink.rank, source.count(Send, sink.rank), taken, tuple(sorted(after)))
    source.add(send, [taken], [])
    after = sink.waits_for(stored, writes=True, but=implies)
    receive = Receive(
        source.rank, sink.count(Receive, source.rank), stored, tuple(sorted(after)), implies=implies
    )
    sink.add(receive, [], [stored])


def _answered(rng: random.Random, source: _Rank, sink: _Rank) -> list[tuple[int, int]]:
    """Now and then a Send of the sink that the source's next one answers, with its Receive."""
    sends = [
        (at, step.index)
        for at, step in enumerate(sink.steps)
        if isinstance(step, Send) and step.peer == source.rank
    ]
    if not sends or rng.random() < 0.5:
        return []
    at, index = rng.choice(sends)
    return [
        (at, there)
        for there, step in enumerate(source.steps)
        if isinstance(step, Receive) and (step.peer, step.index) == (sink.rank, index)
    ]


def _reduction(rng: random.Random, state: _Rank, item: int) -> None:
    operands = [_within(rng, rng.choice(state.written()), item) for _ in range(rng.randrange(1, 5))]
    target = _anywhere(rng, state, min(span.size for span in operands), item)
    if target is None:
        return
    cut = [Span(span.buffer, span.start, target.size) for span in operands]
    if rng.random() < 0.3:  # into one of the operands
        target = next((span for span in cut if span.buffer != Buffer.INPUT), target)
    apart = [
        span for span in cut if span == target or not _Touch(span, 0, True).conflicts(target, True)
    ]
    if apart:
        _reduce(state, target, tuple(apart))


def _computation(rng: random.Random, state: _Rank, item: int) -> None:
    """A step of the client, and now and then the reduction of what it reads."""
    source = _within(rng, Span(Buffer.INPUT, 0, state.sizes[0]), item)
    target = Span(Buffer.OUTPUT, source.start, source.size)
    if rng.random() < 0.5:
        fits = [span for span in state.written() if span.size >= source.size]
        other = rng.choice(fits)
        other = Span(other.buffer, other.start, source.size)
        if other == source or not _Touch(source, 0, True).conflicts(other, True):
            _reduce(state, source, (source, other))
    after = state.waits_for(source, writes=False) | state.waits_for(target, writes=True)
    state.add(Compute(target, source, tuple(sorted(after))), [source], [target])


def _fill_output(state: _Rank, item: int) -> None:
    """Copy what INPUT has to where OUTPUT holds nothing."""
    held = np.zeros(state.sizes[1], bool)
    for span in state.written():
        if span.buffer == Buffer.OUTPUT:
            held[span.start : span.start + span.size] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[True], held, [True]]).astype(np.int8)))
    for start, stop in edges.reshape(-1, 2).tolist():
        _reduce(
            state,
            Span(Buffer.OUTPUT, start, stop - start),
            (Span(Buffer.INPUT, start, stop - start),),
        )


def _reduce(state: _Rank, target: Span, operands: tuple[Span, ...]) -> None:
    after = state.waits_for(target, writes=True)
    for operand in operands:
        after |= state.waits_for(operand, writes=False)
    state.add(Reduce(target, operands, tuple(sorted(after))), operands, [target])


def _within(rng: random.Random, span: Span, item: int) -> Span:
    """A part of `span`, whole elements of it."""
    count = span.size // item
    size = rng.randint(1, count)
    return Span(span.buffer, span.start + rng.randint(0, count - size) * item, size * item)


def _anywhere(rng: random.Random, state: _Rank, size: int, item: int) -> Span | None:
    """Up to `size` bytes of OUTPUT or scratch."""
    buffer = rng.randrange(1, len(state.sizes))
    size = min(size, state.sizes[buffer])
    start = rng.randint(0, (state.sizes[buffer] - size) // item) * item
    return Span(buffer, start, size)


def _program(state: _Rank) -> Program:
    peers = {step.peer for step in state.steps if isinstance(step, Transfer)}
    return Program(tuple(state.steps), frozenset(peers), tuple(state.sizes[2:]))
