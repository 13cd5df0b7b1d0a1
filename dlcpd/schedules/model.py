"""Model of schedules: for every rank a program of steps, as plain values.

A step sends a span of bytes to one rank, receives one, reduces local spans, encodes or decodes one
with a codec, or has the client compute one.
Builders (`direct`, `ring`, ...) produce programs, the executor in `dlcpd.collectives` runs
them over the transport, and `interpreter` computes their expected results in numpy. No step
depends on the collective it belongs to.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

NOT_REPLICATED: Final = -1  # `piece` of a step whose target differs from rank to rank


class Buffer(IntEnum):
    """Buffers that every program has; scratch buffers are numbered from SCRATCH on."""

    # The caller's contribution; read only, unless OUTPUT is the same memory, or a Compute reads it
    INPUT = 0
    OUTPUT = 1  # the caller's result
    SCRATCH = 2  # the first of `Program.scratch`


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, start + size) of one buffer of one rank."""

    buffer: int  # a Buffer, or SCRATCH + n
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Send:
    """This rank owes `peer` the bytes of `span`. Done when the peer has them."""

    peer: int
    index: int  # counts the transfers from this rank to that peer in this operation, from 0
    span: Span
    after: tuple[int, ...] = ()  # steps of this rank that must be done before it begins
    lossy: bool = False  # a bounded part may stay missing; only of INPUT, plain or encoded
    origin: int = 0  # their first byte in the operation's tensor: its layers and bounds apply
    encodes: int = 0  # bytes of the tensor that these encode; 0: they are not encoded


@dataclass(frozen=True, slots=True)
class Receive:
    """`peer` owes this rank the bytes of `span`. Done when they are here.

    `implies` lists sends to the same peer that the peer must have received before it can
    have sent this: its arrival acknowledges them.
    """

    peer: int
    index: int  # equals that of the peer's Send
    span: Span
    after: tuple[int, ...] = ()  # steps that must be done before `span` may be written
    lossy: bool = False  # equals that of the peer's Send
    origin: int = 0  # likewise
    implies: tuple[int, ...] = ()
    piece: int = NOT_REPLICATED  # number of this part of a result that is equal on all ranks
    encodes: int = 0  # equals that of the peer's Send


@dataclass(frozen=True, slots=True)
class Reduce:
    """target = operands[0] + operands[1] + ..., in this order, by the operation's reduction.

    With one operand it copies. The target may be one of the operands. `last`: a final result,
    which "avg" divides by the number of ranks. `halvings`: how often "avg" halves a partial sum,
    which may overflow although the average does not; the divisor of the last sum is smaller by it.
    """

    target: Span
    operands: tuple[Span, ...]
    after: tuple[int, ...] = ()
    last: bool = False
    piece: int = NOT_REPLICATED
    halvings: int = 0

    def divisor(self, op: str, ranks: int) -> float:
        """Divisor of the sum of the operands, in an operation of `ranks` ranks."""
        if op != "avg":
            return 1
        halved = 1 << self.halvings
        return ranks / halved if self.last else halved


@dataclass(frozen=True, slots=True)
class Encode:
    """target = source, encoded by the operation's codec.

    `rounds`: source, a result, is overwritten with the decoded target, as other ranks get it.
    """

    target: Span
    source: Span
    after: tuple[int, ...] = ()
    rounds: bool = False
    piece: int = NOT_REPLICATED  # of source


@dataclass(frozen=True, slots=True)
class Decode:
    """target = source, which `peer` has sent, decoded."""

    target: Span
    source: Span
    peer: int
    after: tuple[int, ...] = ()
    piece: int = NOT_REPLICATED  # of target


@dataclass(frozen=True, slots=True)
class Compute:
    """target = a function of source and of target that the client computes. Done when the client
    says so.

    Both spans hold the same bytes of the tensor: source those of INPUT, target those of OUTPUT.
    """

    target: Span
    source: Span
    after: tuple[int, ...] = ()
    piece: int = NOT_REPLICATED  # of target


Step = Send | Receive | Reduce | Encode | Decode | Compute
Transfer = Send | Receive


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All steps of one rank. `after` and `implies` hold positions in `steps`.

    `steps` is ordered such that every position in an `after` is smaller than its own: if
    several steps may run, the first of them does. `peers` are the ranks to meet before data
    flows: all that exchange data with this one, and more if the collective requires it.
    """

    steps: tuple[Step, ...]
    peers: frozenset[int]
    scratch: tuple[int, ...] = ()  # sizes of the scratch buffers, bytes
    followers: tuple[tuple[int, ...], ...] = field(init=False)  # by step: steps that wait for it
    waits: tuple[int, ...] = field(init=False)  # by step: number of steps it waits for
    results: int = field(init=False)  # steps other than sends
    holding: int = field(init=False)  # sends from the caller's memory
    touched: tuple[tuple[int, ...], ...] = field(init=False)  # by step: scratch buffers it uses
    uses: tuple[int, ...] = field(init=False)  # by scratch buffer: steps that touch it
    sends: dict[tuple[int, int], int] = field(init=False)  # (peer, index) -> position
    receives: dict[tuple[int, int], int] = field(init=False)
    strangers: tuple[int, ...] = field(init=False)  # peers without a transfer
    # peer -> all sends to it, in the order of `index`, if none waits for a peer or may lose a part
    carriable: dict[int, tuple[int, ...]] = field(init=False)
    arriving: dict[int, tuple[int, ...]] = field(init=False)  # peer -> all receives, likewise
    own: tuple[int, ...] = field(init=False)  # sends of this rank's contribution, not of a result
    outgoing: dict[int, int] = field(init=False)  # peer -> bytes that this rank owes it
    incoming: dict[int, int] = field(init=False)  # peer -> bytes that it owes this rank
    parts: dict[int, "Part"] = field(init=False)  # by receive that only a reduction uses
    implied_by: dict[int, tuple[int, ...]] = field(init=False)  # by lossy send: receives
    computed: int = field(init=False)  # steps of the client
    alone: bool = field(init=False)  # computes all of its result, receives none

    def __post_init__(self) -> None:
        touched = tuple(_scratch_of(step) for step in self.steps)
        used = Counter(number for numbers in touched for number in numbers)
        derived = {
            "followers": _followers(self.steps),
            "waits": tuple(len(step.after) for step in self.steps),
            "results": sum(not isinstance(step, Send) for step in self.steps),
            "holding": sum(holds(step) for step in self.steps),
            "touched": touched,
            "uses": tuple(used[number] for number in range(len(self.scratch))),
            "sends": _transfers(self.steps, Send),
            "receives": _transfers(self.steps, Receive),
            "strangers": tuple(sorted(self.peers - _partners(self.steps))),
            "carriable": _carriable(self.steps),
            "arriving": _by_peer(self.steps, Receive),
            "own": tuple(at for at, step in enumerate(self.steps) if _contributes(step)),
            "outgoing": _totals(self.steps, Send),
            "incoming": _totals(self.steps, Receive),
            "parts": _parts(self.steps),
            "implied_by": _implied_by(self.steps),
            "computed": sum(isinstance(step, Compute) for step in self.steps),
            "alone": not any(map(_is_result, self.steps)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


def _is_result(step: Step) -> bool:
    """Whether a step receives or decodes a result of another rank."""
    if isinstance(step, Send | Reduce | Encode | Compute):
        return False
    return written(step).buffer == Buffer.OUTPUT


def read(step: Step) -> tuple[Span, ...]:
    """Spans that a step reads; a Compute reads its target as well, which the caller has written."""
    match step:
        case Send():
            return (step.span,)
        case Receive():
            return ()
        case Reduce():
            return step.operands
    return (step.source,)


def written(step: Receive | Reduce | Encode | Decode | Compute) -> Span:
    """The span that a step writes; an Encode that `rounds` writes its source as well."""
    return step.span if isinstance(step, Receive) else step.target


def replicated(step: Receive | Reduce | Encode | Decode | Compute) -> Span:
    """The part of a result that its `piece` numbers."""
    return step.source if isinstance(step, Encode) else written(step)


def spans(step: Step) -> tuple[Span, ...]:
    """All spans that a step reads or writes."""
    return read(step) if isinstance(step, Send) else (written(step), *read(step))


class Part(NamedTuple):
    """Role of a receive as an operand of a reduction that waits only for such receives: bytes may
    be reduced as soon as all their operands are here."""

    reduction: int  # its position
    operand: int
    coming: int  # operands of the reduction that are received


def _parts(steps: tuple[Step, ...]) -> dict[int, Part]:
    parts = {}
    for position, step in enumerate(steps):
        if isinstance(step, Reduce) and step.after:
            waited = [steps[earlier] for earlier in step.after]
            coming = [s.span for s in waited if isinstance(s, Receive)]
            if len(coming) == len(waited) and all(step.operands.count(s) == 1 for s in coming):
                for earlier, span in zip(step.after, coming, strict=True):
                    parts[earlier] = Part(position, step.operands.index(span), len(coming))
    return parts


def _implied_by(steps: tuple[Step, ...]) -> dict[int, tuple[int, ...]]:
    found = dict[int, tuple[int, ...]]()
    for position, step in enumerate(steps):
        for send in step.implies if isinstance(step, Receive) else ():
            sent = steps[send] if 0 <= send < len(steps) else None  # `check` refuses the others
            if isinstance(sent, Send) and sent.lossy:
                found[send] = (*found.get(send, ()), position)
    return found


def _followers(steps: tuple[Step, ...]) -> tuple[tuple[int, ...], ...]:
    followers: list[list[int]] = [[] for _ in steps]
    for position, step in enumerate(steps):
        for earlier in step.after:
            followers[earlier].append(position)
    return tuple(tuple(later) for later in followers)


def holds(step: Step) -> bool:
    """Whether the caller's memory must stay unchanged until a peer has received this."""
    return isinstance(step, Send) and step.span.buffer < Buffer.SCRATCH


def _contributes(step: Step) -> bool:
    if not isinstance(step, Send):
        return False
    return step.lossy or (step.span.buffer != Buffer.OUTPUT and not step.encodes)


def _scratch_of(step: Step) -> tuple[int, ...]:
    """Scratch buffers that a step reads or writes, each once."""
    buffers = {span.buffer for span in spans(step)}
    return tuple(sorted(number - Buffer.SCRATCH for number in buffers if number >= Buffer.SCRATCH))


def _transfers(steps: tuple[Step, ...], kind: type[Send | Receive]) -> dict[tuple[int, int], int]:
    return {(s.peer, s.index): at for at, s in enumerate(steps) if isinstance(s, kind)}


def _partners(steps: tuple[Step, ...]) -> set[int]:
    return {step.peer for step in steps if isinstance(step, Transfer)}


def _by_peer(steps: tuple[Step, ...], kind: type[Send | Receive]) -> dict[int, tuple[int, ...]]:
    """Transfers with each peer, in the order of `index`."""
    found = defaultdict[int, list[int]](list)
    for (peer, _), position in sorted(_transfers(steps, kind).items()):
        found[peer].append(position)
    return {peer: tuple(positions) for peer, positions in found.items()}


def _carriable(steps: tuple[Step, ...]) -> dict[int, tuple[int, ...]]:
    # steps that wait for no peer and not for the client, and sends after those
    local, sends = set[int](), set[int]()
    for position, step in enumerate(steps):
        if isinstance(step, Receive | Compute) or not local.issuperset(step.after):
            continue
        if not isinstance(step, Send):
            local.add(position)
        elif not step.lossy:
            sends.add(position)
    return {peer: mine for peer, mine in _by_peer(steps, Send).items() if sends.issuperset(mine)}


def _totals(steps: tuple[Step, ...], kind: type[Send | Receive]) -> dict[int, int]:
    totals: Counter[int] = Counter()
    for step in steps:
        if isinstance(step, kind):
            totals[step.peer] += step.span.size
    return dict(totals)
