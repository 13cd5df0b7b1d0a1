"""The checksum in every datagram's header: 64 bits, under a key that only its two ends know.

It covers the header's first 32 bytes and all bytes after the header, so it detects changes by a
switch, a NIC or a forger. For DATA it is SipHash-2-4 of the sum of NH of those 32 bytes and NH of
the payload, with packet number, payload length and path: NH (core.wire.nh) hashes all bytes at
memory speed, and SipHash hides the value of NH, which would reveal its key. For the other kinds,
which are few, it is keyed BLAKE2b. A forged or corrupted datagram passes with a probability of
2**-32.

`dlcpd/io/datapath/checksum.c` is the twin for DATA; tests/vectors/header.json pins both.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire import nh
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import HEADER_SIZE, SEALED, Kind
from dlcpd.core.wire.header_batch import NUMBER, PATH_SHIFT, Words
from dlcpd.core.wire.sizes import MAX_SEGMENT

_CHECKSUM: Final = SEALED // 8  # in a header's 64-bit words
_INITIAL: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_PRF_SIZE: Final = 16  # bytes of SipHash's key
Words64 = NDArray[np.uint64]


def _rotated(x: Words64, by: int) -> Words64:
    return x << np.uint64(by) | x >> np.uint64(64 - by)


def _sip_rounds(v: list[Words64], rounds: int) -> None:
    for _ in range(rounds):
        v[0] = v[0] + v[1]
        v[2] = v[2] + v[3]
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] = _rotated(v[0], 32) + v[3]
        v[2] = v[2] + v[1]
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] = _rotated(v[2], 32)


def siphash(key: tuple[int, int], first: Words64, last: Words64) -> Words64:
    """SipHash-2-4 of messages of 15 bytes: each `first`, then `last` with 15 in its top byte.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012).
    """
    v = [np.full(len(first), key[i % 2] ^ _INITIAL[i], np.uint64) for i in range(4)]
    for message in (first, last):
        v[3] = v[3] ^ message
        _sip_rounds(v, 2)
        v[0] = v[0] ^ message
    v[2] = v[2] ^ np.uint64(0xFF)
    _sip_rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


class Checksum:
    """The checksums of one direction of a flow. `material`: its keys, laid out as C takes them."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: at least 16 bytes, known to the two ends only."""
        self._blake = hashlib.blake2b(key=hashlib.blake2b(secret).digest(), digest_size=8)
        self.material: nh.Key = nh.expand(b"segments" + secret, _PRF_SIZE + SEALED + MAX_SEGMENT)
        first, second = self.material[: _PRF_SIZE // 4].view("<u8").tolist()
        self._prf = first, second
        self._head_key = self.material[_PRF_SIZE // 4 : (_PRF_SIZE + SEALED) // 4]
        self._key = self.material[(_PRF_SIZE + SEALED) // 4 :]
        self._zeros = _sums_of_zeros(self._key)

    def of(self, data: bytes) -> int:
        """Of one datagram of at least HEADER_SIZE bytes; the value in its checksum field is
        ignored."""
        if data[1] != Kind.DATA:
            blake = self._blake.copy()
            blake.update(data[:SEALED] + data[HEADER_SIZE:])
            return int.from_bytes(blake.digest(), "little")
        row = np.frombuffer(data, np.uint8)[None]
        words = np.ascontiguousarray(row[:, :HEADER_SIZE]).view("<u4")
        return int(self.of_rows(words, row, np.zeros(1, np.intp), np.array([len(data)]))[0])

    def sealed(self, data: bytes) -> bytes:
        """The datagram with its checksum."""
        return data[:SEALED] + self.of(data).to_bytes(8, "little") + data[HEADER_SIZE:]

    def seal(self, words: Words, payload: Bytes, segments: Segments, segment_size: int) -> None:
        """Write the checksums of DATA into `words`, headers of `segments` of `payload`, of which
        only the last may be short."""
        hashes = np.empty(len(words), np.uint64)
        lengths = np.full(len(words), segment_size, np.uint64)
        grid = _Grid.of(payload, segment_size)
        count = len(words)
        if int(segments[-1]) == len(grid.whole):
            count -= 1
            lengths[-1] = len(grid.tail)
            hashes[-1] = nh.of_rows(_padded(grid.tail[None]), self._key)[0]
        if count:
            hashes[:count] = nh.of_rows(grid.rows(segments[:count]), self._key)
        words.view("<u8")[:, _CHECKSUM] = self._finish(words, hashes, lengths)

    def of_rows(
        self, words: Words, rows: Bytes, index: Segments, lengths: NDArray[np.intp]
    ) -> Words64:
        """Of DATA that arrived: `rows[index[i]][:lengths[i]]` has the header `words[i]`."""
        hashes = np.empty(len(words), np.uint64)
        longest = int(lengths.max())
        full = lengths == longest
        if np.count_nonzero(full) == len(full):
            hashes[:] = nh.of_rows(_padded(_taken(rows, index, longest)), self._key)
        else:
            hashes[full] = nh.of_rows(_padded(_taken(rows, index[full], longest)), self._key)
            short = ~full
            most = int(lengths[short].max())
            content = _padded(_taken(rows, index[short], most)).copy()
            size = lengths[short] - HEADER_SIZE
            content[np.arange(content.shape[1]) >= size[:, None]] = 0
            beyond = self._zeros[content.shape[1] // nh.WORD] - self._zeros[-(-size // nh.WORD)]
            hashes[short] = nh.of_rows(content, self._key) - beyond
        return self._finish(words, hashes, (lengths - HEADER_SIZE).astype(np.uint64))

    def _finish(self, words: Words, hashes: Words64, lengths: Words64) -> Words64:
        heads = np.ascontiguousarray(words[:, : SEALED // 4]).view(np.uint8)
        about = words[:, NUMBER] | lengths << np.uint64(32)
        about |= (words[:, 0] >> np.uint32(PATH_SHIFT)).astype(np.uint64) << np.uint64(48)
        about |= np.uint64(15 << 56)
        return siphash(self._prf, hashes + nh.of_rows(heads, self._head_key), about)


def _sums_of_zeros(key: nh.Key) -> Words64:
    """NH of rows of 0, 1, 2, ... words that are 0."""
    sums = np.zeros(len(key) // 2 + 1, np.uint64)
    np.cumsum(key[::2].astype(np.uint64) * key[1::2], out=sums[1:])
    return sums


@dataclass(slots=True)
class _Grid:
    """A payload as rows of one segment each, and the short one at its end."""

    whole: Bytes
    tail: Bytes

    @classmethod
    def of(cls, payload: Bytes, segment_size: int) -> "_Grid":
        count = len(payload) // segment_size
        stop = count * segment_size
        return cls(payload[:stop].reshape(count, segment_size), payload[stop:])

    def rows(self, segments: Segments) -> Bytes:
        """The rows of `segments`; a view where they are contiguous."""
        first, count = int(segments[0]), len(segments)
        if int(segments[-1]) - first + 1 == count and not np.count_nonzero(np.diff(segments) != 1):
            return self.whole[first : first + count]
        return self.whole[segments]


def _taken(rows: Bytes, index: Segments, length: int) -> Bytes:
    """Payloads of rows of `length` bytes; `index` ascends, so its ends tell whether it has gaps."""
    first, last = int(index[0]), int(index[-1])
    if last - first + 1 == len(index):
        return rows[first : last + 1, HEADER_SIZE:length]
    return rows[index, HEADER_SIZE:length]


def _padded(rows: Bytes) -> Bytes:
    """Rows padded with zeros to whole words."""
    size = rows.shape[1]
    if size % nh.WORD == 0:
        return rows
    padded = np.zeros((len(rows), -(-size // nh.WORD) * nh.WORD), np.uint8)
    padded[:, :size] = rows
    return padded


@dataclass(slots=True)
class Keyring:
    """The checksum keys of all senders to this engine, by token. Datagrams whose token has no key
    are not checked: core refuses tokens that it does not know. `version` grows with each change."""

    version: int = 0
    _by_token: dict[int, Checksum] = field(default_factory=dict)

    def add(self, token: int, checksum: Checksum) -> None:
        """From now on, datagrams with `token` are checked against `checksum`."""
        self._by_token[token] = checksum
        self.version += 1

    def remove(self, token: int) -> None:
        """Forget the key of `token`."""
        if self._by_token.pop(token, None) is not None:
            self.version += 1

    def get(self, token: int) -> Checksum | None:
        """The key of a token."""
        return self._by_token.get(token)

    def items(self) -> list[tuple[int, Checksum]]:
        """All (token, key) pairs."""
        return list(self._by_token.items())

    def __bool__(self) -> bool:
        return bool(self._by_token)

    def is_genuine(self, token: int, checksum: int, data: bytes) -> bool:
        """Whether the `checksum` of a header matches its datagram; True if `token` has no key."""
        key = self._by_token.get(token)
        return key is None or key.of(data) == checksum

    def genuine(
        self, words: Words, rows: Bytes, index: Segments, lengths: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Which DATA match their checksums; arguments as of `Checksum.of_rows`."""
        good = np.ones(len(words), bool)
        pairs = words.view("<u8")
        tokens = pairs[:, 1]
        for token in np.unique(tokens).tolist():
            key = self._by_token.get(token)
            if key is None:
                continue
            at = np.flatnonzero(tokens == token)
            sums = key.of_rows(words[at], rows, index[at], lengths[at])
            good[at] = sums == pairs[at, _CHECKSUM]
        return good
