"""The memory of one operation: its caller's, and scratch memory while a step needs it."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.collectives.holdings import Holdings
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.core.wire.datagram import Bytes
from dlcpd.schedules.model import Buffer, Program, Span

SCRATCH: Final = int(Buffer.SCRATCH)  # used for every span: members of enums are slow to look up


@dataclass(slots=True, eq=False)
class Buffers:
    """Buffers of one operation, and the bytes that `holdings` counts for it.

    A scratch buffer exists from the first step that touches it to the end of the last one.
    """

    memory: tuple[Bytes, Bytes]  # INPUT and OUTPUT
    pool: ScratchPool  # of the engine
    holdings: Holdings  # of the session
    scratch: dict[int, Bytes] = field(default_factory=dict)  # in use, by number
    _sizes: tuple[int, ...] = ()  # bytes, by number of the scratch buffer
    _uses: list[int] = field(default_factory=list)  # by number: open steps that touch it
    _held: int = 0  # bytes that are counted
    _closed: bool = False  # no bytes are counted any more

    def serve(self, program: Program) -> None:
        """From now on, the scratch buffers are those of `program`; none is in use."""
        self._sizes, self._uses = program.scratch, list(program.uses)

    def hold(self, size: int) -> None:
        """Count `size` bytes more as held."""
        if not self._closed:
            self._held += size
            self.holdings.take(size)

    def close(self) -> None:
        """The operation is over: no bytes are held for it."""
        if self._held:
            self.holdings.give(self._held)
            self._held = 0
        self._closed = True

    def bytes_of(self, span: Span) -> Bytes:
        """The bytes of a span; its scratch buffer is taken from the pool if it is not in use."""
        stop = span.start + span.size
        number = span.buffer - SCRATCH
        if number < 0:
            return self.memory[span.buffer][span.start : stop]
        buffer = self.scratch.get(number)
        if buffer is None:
            buffer = self.scratch[number] = self.take(self._sizes[number])
        return buffer[span.start : stop]

    def absent(self, span: Span) -> int:
        """Bytes that `bytes_of` would take from the pool."""
        number = span.buffer - SCRATCH
        return 0 if number < 0 or number in self.scratch else self._sizes[number]

    def release(self, number: int) -> None:
        """A step that touches a scratch buffer is done: free the buffer after the last such
        step."""
        self._uses[number] -= 1
        if not self._uses[number] and number in self.scratch:
            self.give(self.scratch.pop(number))

    def take(self, size: int) -> Bytes:
        """`size` bytes of the pool besides the program's scratch buffers, not cleared."""
        buffer = self.pool.take(size)
        self.hold(size)
        return buffer

    def give(self, buffer: Bytes) -> None:
        """Return what `take` gave."""
        if not self._closed:
            self._held -= len(buffer)
            self.holdings.give(len(buffer))
        self.pool.give(buffer)
