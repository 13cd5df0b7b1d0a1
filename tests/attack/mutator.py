"""Datagrams of a running session with one or several things wrong: what a peer gone mad would send.

The token stays right but for one mutation of it, so all of it gets past the first check. What is
never sent is a DATA datagram whose bytes a transfer could take for others: the same payload under
the number of another open place, or another payload. A holder of the token can send those, and
nothing authenticates them yet.
"""

import random
from collections.abc import Callable
from typing import Final

from dlcpd.core.paths.pieces import cut
from dlcpd.core.wire.header import HEADER_SIZE, Kind

Datagram = bytes
FIELDS: Final = {  # of the header: offset, size
    "version": (0, 1), "kind": (1, 1), "flags": (2, 1), "path": (3, 1), "operation": (4, 4),
    "token": (8, 8), "stream": (16, 2), "transfer": (18, 2), "segment": (20, 2), "round": (22, 1),
    "tag": (23, 1), "packet_number": (24, 4), "sent_at": (28, 4),
}  # fmt: skip
# Of DATA, only to where no transfer is: beyond MAX_AHEAD operations, MAX_SEGMENTS, ...
NOWHERE: Final = {
    "operation": (0, 0x7FFF_FFFF, 0xFFFF_FFFF), "stream": (1, 0x4000, 0x8000, 0xC000, 0xFFFF),
    "transfer": (0x4000, 0xFFFF), "segment": (2048, 4095, 4096, 0xFFFF),
}  # fmt: skip
WEIGHTS: Final = dict.fromkeys(FIELDS, 4) | {"version": 1, "token": 1}
MAX_EXTENSION: Final = 64  # bytes
LEAST_PIECE: Final = 600  # bytes; cuts a segment in two


class Mutator:
    """`tokens` are all that are valid: a mutated one is none of them."""

    def __init__(self, seed: int, tokens: set[int]) -> None:
        self._random, self._tokens = random.Random(seed), tokens
        self._ways: list[tuple[Callable[[bytes], list[bytes]], int]] = [
            (self._fields, 12),
            (self._body, 4),
            (self._truncated, 1),
            (self._extended, 1),
            (self._twice, 1),
            (self._pieces, 1),
        ]

    def __call__(self, data: Datagram) -> list[Datagram]:
        """One valid datagram as one or several that are not, or not where they belong."""
        way = self._random.choices(*zip(*self._ways, strict=True))[0]
        made: list[bytes] = way(data)
        return made

    def _fields(self, data: Datagram) -> list[Datagram]:
        out, count = bytearray(data), self._random.choice((1, 1, 1, 2, 3))
        for name in self._random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count):
            self._field(out, name)
        return [_harmless(data, out)]

    def _field(self, data: bytearray, name: str) -> None:
        offset, size = FIELDS[name]
        old = int.from_bytes(data[offset : offset + size], "little")
        new = self._value(old, size)
        if data[1] == Kind.DATA and name in NOWHERE:
            new = self._random.choice(NOWHERE[name])
        while name == "token" and new in self._tokens:
            new = self._random.getrandbits(64)
        if name == "kind" and self._random.random() < 0.7:
            new = self._random.choice(list(Kind))
        data[offset : offset + size] = new.to_bytes(size, "little")

    def _value(self, old: int, size: int) -> int:
        most = (1 << 8 * size) - 1
        flipped = old ^ 1 << self._random.randrange(8 * size)
        choices = (0, 1, most, most - 1, old + 1, old - 1, flipped, self._random.randint(0, most))
        return self._random.choice(choices) & most

    def _body(self, data: Datagram) -> list[Datagram]:
        """Of control: numbers in it, at their bounds and beyond."""
        if data[1] == Kind.DATA or len(data) == HEADER_SIZE:
            return self._fields(data)
        out = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 3))):
            size = self._random.choice((1, 2, 4))
            at = self._random.randrange(HEADER_SIZE, len(data))
            end = min(at + size, len(data))
            old = int.from_bytes(data[at:end], "little")
            out[at:end] = self._value(old, end - at).to_bytes(end - at, "little")
        return [bytes(out)]

    def _truncated(self, data: Datagram) -> list[Datagram]:
        return [data[: self._random.randrange(len(data))]]

    def _extended(self, data: Datagram) -> list[Datagram]:
        return [data + self._random.randbytes(self._random.randint(1, MAX_EXTENSION))]

    def _twice(self, data: Datagram) -> list[Datagram]:
        return [data, data]

    def _pieces(self, data: Datagram) -> list[Datagram]:
        """Cut, and one of the pieces wrong: in the header, or in where it says that it belongs."""
        out = [bytearray(each) for each in cut(data, self._random.getrandbits(32), LEAST_PIECE)]
        one = self._random.choice(out)
        if self._random.random() < 0.5:
            self._field(one, self._random.choice(list(FIELDS)))
        else:
            at = HEADER_SIZE + self._random.randrange(8)
            one[at] = self._value(one[at], 1)
        return [bytes(each) for each in out if each[1] != Kind.DATA]


def _harmless(data: Datagram, made: bytearray) -> Datagram:
    """What was control, and is DATA now, belongs to no operation that there is."""
    if made[1] == Kind.DATA != data[1]:
        made[4:8] = b"\xff" * 4
    return bytes(made)
