"""Proof that replicas stay equal (P2): digests of results, compared between ranks."""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from dlcpd.core.wire import nh
from dlcpd.core.wire.datagram import Bytes

REMEMBERED: Final = 256  # operations; peers are never further apart than their operations in flight
MAX_KEPT: Final = 1 << 18  # digests of all streams of a session, 110 B each: 29 MB
OWN: Final = 6  # the weight of a digest of this rank, for its label and pieces
FEW: Final = 2  # of a stream, of each kind, where all of them hold more than that
NOT_THERE: Final = object()
MAX_NAMED: Final = 4  # pieces that an error names
BLOCK: Final = 8 << 10  # bytes under one value of NH: its key stays in a first-level cache
MASK: Final = (1 << 64) - 1

HashRows = Callable[[Bytes, nh.Key], nh.Values]


class Digester:
    """Digests of one session: of every byte, and of its position.

    Blocks of 8 KiB are hashed with NH, and the list of their hashes, with piece and length, with
    keyed BLAKE2b. Different bytes, or equal bytes elsewhere, have the same digest once in 2**32.
    The key is secret to the session, so an outsider cannot make a change that the digest does not
    show.
    """

    def __init__(self, key: bytes = b"", hash_rows: HashRows = nh.of_rows) -> None:
        """`key`: at most 64 bytes, equal on all ranks. `hash_rows`: as `nh.of_rows`, or faster."""
        self._key, self._hash_rows = key, hash_rows
        self._nh_key = nh.expand(b"digest" + key, BLOCK)

    def piece(self, data: Bytes, number: int) -> int:
        """Digest of piece `number` of a result, a u64."""
        whole = len(data) // BLOCK * BLOCK
        rest = len(data) - whole
        digest = hashlib.blake2b(key=self._key, digest_size=8)
        digest.update(b"%d %d " % (number, len(data)))
        if whole:
            rows = data[:whole].reshape(-1, BLOCK)
            digest.update(self._hash_rows(rows, self._nh_key).tobytes())
        if rest:
            last = np.zeros((1, -(-rest // nh.WORD) * nh.WORD), np.uint8)
            last[0, :rest] = data[whole:]
            digest.update(nh.of_rows(last, self._nh_key).tobytes())
        return int.from_bytes(digest.digest(), "little")


class DigestPiece(NamedTuple):
    """Part of a result that entered its digest."""

    number: int
    start: int  # byte of the result
    stop: int
    source: int  # rank that sent it here, or this one, which computed it


class Digest(NamedTuple):
    """Of the result of one operation."""

    value: int = 0  # u64; 0: no piece was hashed
    label: str = ""  # of the operation, for errors
    pieces: tuple[DigestPiece, ...] = ()  # the first of those that were hashed

    def plus(self, value: int, piece: DigestPiece) -> "Digest":
        """With one more piece; pieces may come in any order."""
        pieces = (*self.pieces, piece) if len(self.pieces) <= MAX_NAMED else self.pieces
        return Digest(self.value + value & MASK, self.label, pieces)

    def describe(self) -> str:
        """Operation and pieces, for errors."""
        named = [
            f"chunk {piece.number} (bytes {piece.start} to {piece.stop}, which came here from rank "
            f"{piece.source})"
            for piece in self.pieces[:MAX_NAMED]
        ]
        more = ["others"] if len(self.pieces) > MAX_NAMED else []
        return f"{self.label}, where " + ", ".join(named + more) + " were compared"


@dataclass(slots=True)
class DigestCount:
    """How much all digest books of a session hold."""

    entries: int = 0


@dataclass(slots=True)
class DigestBook:
    """Of one stream: own digests by operation, those to send, those that peers sent before the own
    one, and those that peers have yet to confirm."""

    kept: DigestCount = field(default_factory=DigestCount)
    _own: OrderedDict[int, Digest] = field(default_factory=OrderedDict)
    _early: OrderedDict[tuple[int, int], int] = field(default_factory=OrderedDict)
    _untold: dict[int, deque[int]] = field(default_factory=dict)  # by rank: operations in order
    # by rank: operations whose results the rank has not confirmed
    _open: dict[int, OrderedDict[int, None]] = field(default_factory=dict)

    def next_for(self, rank: int) -> tuple[int, int]:
        """(operation, digest) to send to `rank`; (0, 0) when there is none.

        One READY carries one digest, and there are as many READYs as results: so all digests are
        sent, however many operations are in flight.
        """
        untold = self._untold.get(rank)
        operation = untold.popleft() if untold else 0
        return operation, self.own(operation) or 0

    def own(self, operation: int) -> int | None:
        """This rank's digest of an operation; None while there is none, and once it is
        forgotten."""
        digest = self._own.get(operation)
        return None if digest is None else digest.value

    def describe(self, operation: int) -> str:
        """Operation and pieces that were compared, for errors."""
        digest = self._own.get(operation)
        return digest.describe() if digest is not None else f"operation {operation}"

    def add(self, operation: int, digest: Digest, ranks: Iterable[int]) -> int | None:
        """Add this rank's digest, for `ranks`. Returns a rank that is known to disagree, if any."""
        self._own[operation] = digest
        self._added(self._own, REMEMBERED, OWN)
        other = None
        for rank in ranks:
            self._untold.setdefault(rank, deque(maxlen=REMEMBERED)).append(operation)
            theirs = self._early.pop((rank, operation), None)
            self.kept.entries -= theirs is not None
            if theirs is None:
                self._await(rank, operation, digest)
            elif theirs != digest.value:
                other = rank
        return other

    def _await(self, rank: int, operation: int, digest: Digest) -> None:
        if digest.value:
            awaited = self._open.setdefault(rank, OrderedDict())
            awaited[operation] = None
            self._added(awaited, REMEMBERED)

    def _added(self, entries: OrderedDict[Any, Any], most: int, weight: int = 1) -> None:
        """Count one more; drop the oldest where they are too many."""
        self.kept.entries += weight
        while len(entries) > (most if self.kept.entries <= MAX_KEPT else FEW):
            entries.popitem(last=False)
            self.kept.entries -= weight

    def check(self, rank: int, operation: int, digest: int) -> bool:
        """Take in a peer's digest. False: it differs from this rank's."""
        mine = self.own(operation)
        if mine is not None:
            self.forgo(rank, operation)
            return mine == digest
        if operation:
            known = len(self._early)
            self._early[rank, operation] = digest
            if len(self._early) > known:
                self._added(self._early, 8 * REMEMBERED)
        return True

    def forgo(self, rank: int, operation: int) -> None:
        """`rank` will confirm nothing more about an operation."""
        if rank in self._open:
            self.kept.entries -= self._open[rank].pop(operation, NOT_THERE) is None

    def unconfirmed(self, rank: int) -> list[int]:
        """Operations whose digest `rank` has not sent, the newest last."""
        return list(self._open.get(rank, ()))

    @property
    def size(self) -> int:
        """Digests kept."""
        return len(self._own) + len(self._early)
