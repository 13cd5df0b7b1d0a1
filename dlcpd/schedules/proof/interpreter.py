"""Reference interpreter: computes the results of a schedule in numpy, one step at a time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.numerics.canonical import make_canonical
from dlcpd.numerics.codecs import coding
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.reduce import reduce_in_order
from dlcpd.schedules.errors import Stuck
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
    Transfer,
)

Bytes = NDArray[np.uint8]
Number = tuple[int, int, int]  # of a transfer: source, destination, index
# rank, step, source, target: puts what the client of the rank computes into `target`
Computation = Callable[[int, Compute, Bytes, Bytes], None]
NOTHING: Final[Mapping[Number, Sequence[slice]]] = {}


def interpret(  # noqa: PLR0913  # all but the first two by name
    programs: Sequence[Program],
    inputs: Sequence[Bytes],
    *,
    outputs: Sequence[int],
    dtype: str,
    op: str,
    input_at: Sequence[int] | None = None,
    seed: int = 0,
    lost: Mapping[Number, Sequence[slice]] = NOTHING,
    codec: Codec | None = None,
    compute: Computation | None = None,
) -> list[Bytes]:
    """The bytes of every rank's OUTPUT after all `programs` have run.

    `inputs` are the bytes of every rank's INPUT, which are not written; `outputs` the sizes of
    their OUTPUT, in bytes. `input_at` is as in `check`. The next of the steps that may run is
    random by `seed`, and unwritten memory holds random bytes: a well-formed schedule gives the
    same result for every seed. "avg" divides by the number of ranks. `lost`: bytes of transfers
    that never arrive, and count as zero. `codec`: of programs that encode. `compute`: of programs
    in which the client computes; unwritten memory of OUTPUT is random here, too.

    Raises: Stuck.
    """
    rng = np.random.default_rng(seed)
    ranks = []
    for rank, program in enumerate(programs):
        at = None if input_at is None else input_at[rank]
        given = inputs[rank] if compute is None else inputs[rank].copy()  # sums replace parts of it
        buffers = _buffers(program, given, outputs[rank], at, rng)
        ranks.append(_Rank(program, buffers))
    run = _Run(ranks, dtype, op, lost, codec, compute)
    while run.ready:
        run.step(int(rng.integers(len(run.ready))))
    for rank, state in enumerate(ranks):
        for position, done in enumerate(state.done):
            if not done:
                step = state.program.steps[position]
                raise Stuck(rank, position, step, "never comes to its end")
    return [state.buffers[Buffer.OUTPUT] for state in ranks]


@dataclass(slots=True)
class _Rank:
    """State of one rank."""

    program: Program
    buffers: list[Bytes]
    waits: list[int] = field(init=False)  # by step: number of open steps it waits for
    done: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.waits = [len(set(step.after)) for step in self.program.steps]
        self.done = [False] * len(self.waits)

    def bytes(self, span: Span) -> Bytes:
        return self.buffers[span.buffer][span.start : span.start + span.size]


@dataclass(slots=True)
class _Run:
    """State of all ranks. `ready` holds local steps that may run, and receives of transfers both
    of whose ends may."""

    ranks: list[_Rank]
    dtype: str
    op: str
    lost: Mapping[Number, Sequence[slice]]
    codec: Codec | None
    compute: Computation | None
    ready: list[tuple[int, int]] = field(default_factory=list)  # rank, position
    _begun: set[Number] = field(default_factory=set)

    def __post_init__(self) -> None:
        for rank, state in enumerate(self.ranks):
            for position, waits in enumerate(state.waits):
                if not waits:
                    self._may_run(rank, position)

    def step(self, which: int) -> None:
        """Run one of `ready`."""
        self.ready[which], self.ready[-1] = self.ready[-1], self.ready[which]
        rank, position = self.ready.pop()
        state = self.ranks[rank]
        step = state.program.steps[position]
        match step:
            case Reduce():
                self._reduce(state, step)
            case Receive():
                self._receive(rank, step)
            case Encode():
                source, target = state.bytes(step.source), state.bytes(step.target)
                work = coding.encode(self._coder, self.dtype, source, target, rounds=step.rounds)
                deque(work, maxlen=0)
            case Decode():
                source, target = state.bytes(step.source), state.bytes(step.target)
                coding.decode(self._coder, self.dtype, source, target)
            case Compute():
                if self.compute is None:
                    raise ValueError("in these programs the client computes: give its computation")
                self.compute(rank, step, state.bytes(step.source), state.bytes(step.target))
        self._done(rank, position)

    @property
    def _coder(self) -> Codec:
        if self.codec is None:
            raise ValueError("these programs encode what they send: give their codec")
        return self.codec

    def _reduce(self, state: _Rank, step: Reduce) -> None:
        divide_by = step.divisor(self.op, len(self.ranks))
        operands = [state.bytes(operand) for operand in step.operands]
        reduce_in_order(
            state.bytes(step.target), operands, self.dtype, self.op, divide_by=divide_by
        )
        if step.last and state.program.alone and step.piece != NOT_REPLICATED:
            make_canonical(state.bytes(step.target), self.dtype)

    def _receive(self, rank: int, step: Receive) -> None:
        source = self.ranks[step.peer]
        sent = source.program.sends[rank, step.index]
        send = source.program.steps[sent]
        assert isinstance(send, Send)  # noqa: S101  # `sends` holds nothing else
        target = self.ranks[rank].bytes(step.span)
        target[:] = source.bytes(send.span)
        for hole in self.lost.get((step.peer, rank, step.index), ()):
            target[hole] = 0
        self._done(step.peer, sent)

    def _done(self, rank: int, position: int) -> None:
        state = self.ranks[rank]
        state.done[position] = True
        for follower in set(state.program.followers[position]):
            state.waits[follower] -= 1
            if not state.waits[follower]:
                self._may_run(rank, follower)

    def _may_run(self, rank: int, position: int) -> None:
        step = self.ranks[rank].program.steps[position]
        if not isinstance(step, Transfer):
            self.ready.append((rank, position))
            return
        sends = isinstance(step, Send)
        ends = (rank, step.peer) if sends else (step.peer, rank)
        transfer = (*ends, step.index)
        if transfer not in self._begun:
            self._begun.add(transfer)
            return
        receives = self.ranks[ends[1]].program.receives
        self.ready.append((ends[1], receives[ends[0], step.index]))


def _buffers(
    program: Program, given: Bytes, output: int, input_at: int | None, rng: np.random.Generator
) -> list[Bytes]:
    """INPUT, OUTPUT and scratch of one rank."""
    scratch = [_noise(size, rng) for size in program.scratch]
    if input_at is None:
        return [given, _noise(output, rng), *scratch]
    low, high = min(0, input_at), max(output, input_at + len(given))
    memory = _noise(high - low, rng)
    shared = memory[input_at - low : input_at - low + len(given)]
    shared[:] = given
    return [shared, memory[-low : output - low], *scratch]


def _noise(size: int, rng: np.random.Generator) -> Bytes:
    return rng.integers(0, 256, size, np.uint8)
