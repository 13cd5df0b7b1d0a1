"""Rules that drop, corrupt, duplicate or reorder datagrams; counted, and random by seed only."""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire import bundle
from dlcpd.core.wire.header import Header, Kind

ANY: Final = -1  # host or path


class Passage(NamedTuple):
    """A datagram on the way between two hosts."""

    source: int  # host
    target: int
    path: int
    data: bytes

    @property
    def headers(self) -> list[Header]:
        """Header of the datagram, or of each part of a BUNDLE; none if it is malformed."""
        try:
            header = Header.unpack_untrusted(self.data)
            if header.kind is not Kind.BUNDLE:
                return [header]
            return [part for part, _ in bundle.unpack_untrusted(self.data)]
        except MalformedDatagram:
            return []


class Way(NamedTuple):
    """A filter of datagrams by hosts and path; ANY = all."""

    source: int = ANY
    target: int = ANY
    path: int = ANY

    def holds(self, passage: Passage) -> bool:
        """Whether the filter matches."""
        wanted = zip(self, passage[:3], strict=True)
        return all(mine in (ANY, its) for mine, its in wanted)


class Rule:
    """Passes all datagrams; `fired` counts the datagrams that a subclass changed."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self.ways, self.fired = tuple(ways), 0

    def take(self, passage: Passage) -> Sequence[Passage]:
        """The datagrams to forward in place of one."""
        if not any(way.holds(passage) for way in self.ways):
            return (passage,)
        return self.change(passage)

    def change(self, passage: Passage) -> Sequence[Passage]:
        """The same for a datagram that matches the rule."""
        return (passage,)

    def rest(self) -> Sequence[Passage]:
        """Release the datagrams that the rule holds; called when no others arrive."""
        return ()


class Cut(Rule):
    """Drops all datagrams."""

    def change(self, passage: Passage) -> Sequence[Passage]:
        self.fired += 1
        return ()


class Drop(Rule):
    """Drops the first `most` datagrams for a header of which `wanted` is true; default: all."""

    def __init__(
        self, ways: Sequence[Way], wanted: Callable[[Header], bool], most: float = math.inf
    ) -> None:
        super().__init__(ways)
        self._wanted, self._most = wanted, most

    def change(self, passage: Passage) -> Sequence[Passage]:
        if self.fired >= self._most or not any(map(self._wanted, passage.headers)):
            return (passage,)
        self.fired += 1
        return ()


class Sometimes(Rule):
    """Changes each datagram with probability `share`."""

    def __init__(self, ways: Sequence[Way], seed: int, share: float) -> None:
        super().__init__(ways)
        self.random, self._share = random.Random(seed), share

    def change(self, passage: Passage) -> Sequence[Passage]:
        if self.random.random() >= self._share:
            return (passage,)
        self.fired += 1
        return self.spoil(passage)

    def spoil(self, passage: Passage) -> Sequence[Passage]:
        """The datagrams to forward in place of a chosen one."""
        return (passage,)


class Corrupt(Sometimes):
    """Flips one random bit. The UDP checksum is right again, as behind a device that corrupts its
    memory."""

    def spoil(self, passage: Passage) -> Sequence[Passage]:
        spoiled = bytearray(passage.data)
        bit = self.random.randrange(8 * len(spoiled))
        spoiled[bit // 8] ^= 1 << bit % 8
        return (passage._replace(data=bytes(spoiled)),)


class Duplicate(Sometimes):
    """Forwards a datagram twice, and one of the last KEPT duplicated ones again."""

    KEPT: Final = 64

    def __init__(self, ways: Sequence[Way], seed: int, share: float) -> None:
        super().__init__(ways, seed, share)
        self._old: deque[Passage] = deque(maxlen=self.KEPT)

    def spoil(self, passage: Passage) -> Sequence[Passage]:
        self._old.append(passage)
        return (passage, passage, self.random.choice(self._old))


class Reorder(Rule):
    """Collects `span` datagrams of all ways, and forwards them in random order."""

    def __init__(self, ways: Sequence[Way], seed: int, span: int) -> None:
        super().__init__(ways)
        self.random, self._span = random.Random(seed), span
        self._held: list[Passage] = []

    def change(self, passage: Passage) -> Sequence[Passage]:
        self._held.append(passage)
        return self.rest() if len(self._held) >= self._span else ()

    def rest(self) -> Sequence[Passage]:
        held, self._held = self._held, []
        mixed = self.random.sample(held, len(held))
        self.fired += sum(one is not other for one, other in zip(held, mixed, strict=True))
        return mixed
