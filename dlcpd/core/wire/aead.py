"""Encryption of datagrams: AES-256-GCM, each datagram by itself.

The header stays in clear, since the receiver finds the key by its token; it is authenticated with
the rest. The bytes after the header are encrypted, and a 16-byte tag follows them. The checksum
field holds the datagram's counter, which all kinds and paths of one direction of a flow share: it
is the nonce, and it only grows, so no nonce is used twice. docs/wire.md, "Encryption".
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from dlcpd.contract.errors import MalformedDatagram, TooMany
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import HEADER_SIZE, SEALED
from dlcpd.core.wire.header_batch import Words
from dlcpd.core.wire.replay import Counters, ReplayWindow

TAG: Final = 16  # bytes, not truncated
LEAST: Final = HEADER_SIZE + TAG  # bytes of a datagram without a body
COUNTERS: Final = 1 << 48  # per session and direction: ten years of 1,408 B datagrams at 10 Gb/s
# Datagrams under one key. At 8,896 B that is 2**33.2 blocks, so an observer distinguishes
# ciphertext from noise with a probability of at most (2**33.2)**2 / 2**129 = 2**-62; TLS 1.3 (RFC
# 8446 section 5.5) and QUIC (RFC 9001 appendix B) change keys at 2**-57.
EPOCH: Final = 24  # bits of the counter
_NONCE: Final = 12  # bytes: four of 0, and the counter
_COUNTER: Final = SEALED // 8  # in a header's 64-bit words


@dataclass(frozen=True, slots=True)
class Datagrams:
    """`rows[index[i]][:lengths[i]]` is datagram i."""

    rows: Bytes
    index: Segments
    lengths: NDArray[np.intp]

    def some(self, at: Segments) -> "Datagrams":
        """The datagrams at the indices `at`."""
        return Datagrams(self.rows, self.index[at], self.lengths[at])


class KeySpent(TooMany):
    """A direction of a flow has used all its counters."""


def shared_key(receiver: bytes, sender: bytes) -> bytes:
    """The root of the keys of one direction of a flow: 32 bytes.

    Derived from the secrets of both ends, each new with every session: an end that restarts counts
    under another key. `receiver`: at most 64 bytes.
    """
    return hashlib.blake2b(sender, key=receiver, person=b"dlcpd data", digest_size=32).digest()


class Keys:
    """The ciphers of one direction, by epoch: the high bits of a counter."""

    def __init__(self, shared: bytes) -> None:
        self._shared = shared
        self._known: dict[int, AESGCM] = {}

    def of(self, epoch: int) -> AESGCM:
        """The cipher of counters `epoch << EPOCH` and up."""
        cipher = self._known.get(epoch)
        if cipher is None:
            key = hashlib.blake2b(
                epoch.to_bytes(8, "little"),
                key=self._shared,
                person=b"dlcpd data epoch",
                digest_size=32,
            )
            cipher = self._known[epoch] = AESGCM(key.digest())
            while len(self._known) > 3:  # the one in use and its neighbours
                del self._known[min(self._known)]
        return cipher


class Sealer:
    """The sending end of one direction of a flow, on all its paths."""

    def __init__(self, shared: bytes, counter: int = 0) -> None:
        self._keys, self._counter = Keys(shared), counter

    def sealed(self, data: bytes) -> bytes:
        """The datagram with its counter, encrypted body and tag. Raises: KeySpent."""
        counter = self._take(1)
        head = data[:SEALED] + counter.to_bytes(8, "little")
        cipher = self._keys.of(counter >> EPOCH)
        return head + cipher.encrypt(_nonce(counter), data[HEADER_SIZE:], head)

    def seal(
        self, words: Words, payload: Bytes, segments: Segments, segment_size: int, room: Bytes
    ) -> Bytes:
        """Write counters into `words`, the headers of `segments` of `payload`, of which only the
        last may be short, and the encrypted segments with their tags into `room`, without gaps.
        Returns the used part of `room`. Raises: KeySpent."""
        first = self._take(len(words))
        counters = np.arange(first, first + len(words))
        words.view("<u8")[:, _COUNTER] = counters
        nonces, heads = _nonces(counters), words.data.cast("B")
        plain, out, at = payload.data, room.data, 0
        starts = (segments * segment_size).tolist()
        for cipher, rows in self._by_key(counters):
            for row in rows:
                body = plain[starts[row] : starts[row] + segment_size]
                size = len(body) + TAG
                cipher.encrypt_into(
                    nonces[row * _NONCE : (row + 1) * _NONCE],
                    body,
                    heads[row * HEADER_SIZE : (row + 1) * HEADER_SIZE],
                    out[at : at + size],
                )
                at += size
        return room[:at]

    def _take(self, count: int) -> int:
        """Reserve `count` unused counters; returns the first. Raises: KeySpent."""
        first = self._counter + 1
        if first + count > COUNTERS:
            raise KeySpent(f"all {COUNTERS:,} datagrams of this session have gone out")
        self._counter += count
        return first

    def _by_key(self, counters: Counters) -> Iterator[tuple[AESGCM, range]]:
        """Runs of rows that have the same key; counters ascend one by one."""
        epochs = counters >> EPOCH
        stops = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist(), len(counters)]
        for start, stop in pairwise(stops):
            if start < stop:
                yield self._keys.of(int(epochs[start])), range(start, stop)


class Opener:
    """The receiving end. It accepts each counter once."""

    def __init__(self, shared: bytes) -> None:
        self._keys, self._window = Keys(shared), ReplayWindow()

    def opened(self, data: bytes) -> bytes:
        """Decrypt a datagram of at least LEAST bytes.

        Raises: MalformedDatagram, with the replay window unchanged.
        """
        counter = int.from_bytes(data[SEALED:HEADER_SIZE], "little")
        self._check_counter(counter)
        cipher = self._keys.of(counter >> EPOCH)
        try:
            body = cipher.decrypt(_nonce(counter), data[HEADER_SIZE:], data[:HEADER_SIZE])
        except InvalidTag:
            raise MalformedDatagram("checksum") from None
        self._window.take(np.array([counter]))
        return data[:HEADER_SIZE] + body

    def _check_counter(self, counter: int) -> None:
        if counter >= self._limit:
            raise MalformedDatagram("checksum")
        if not self._window.unseen(np.array([counter]))[0]:
            raise MalformedDatagram("replayed")

    @property
    def _limit(self) -> int:
        """Exclusive upper bound of valid counters: a sender is never an epoch ahead of the
        arrivals, since 2**24 datagrams are a thousand times what may be in flight. It bounds the
        number of keys that forged counters can have derived."""
        return min((self._window.newest >> EPOCH) + 2 << EPOCH, COUNTERS)

    def open_rows(
        self, words: Words, sealed: Datagrams, out: Bytes
    ) -> tuple[NDArray[np.bool_], int]:
        """Decrypt datagrams with headers `words`, each of at least LEAST bytes: the bytes after the
        header go to the same place of `out`, an array like their rows. Returns which are genuine
        and new, and how many of the others are replays."""
        claimed = words.view("<u8")[:, _COUNTER]
        near = claimed < self._limit
        counters = np.where(near, claimed, 0).astype(np.int64)  # 0 is never unseen
        good = self._window.unseen(counters)
        replayed = int(np.count_nonzero(near & ~good))
        self._decrypt(counters, sealed, out, good)
        at = np.flatnonzero(good)
        good[at] = self._window.take(counters[at])
        return good, replayed + len(at) - int(np.count_nonzero(good))

    def _decrypt(
        self, counters: Counters, sealed: Datagrams, out: Bytes, good: NDArray[np.bool_]
    ) -> None:
        """Decrypt the datagrams that are `good`; clear `good` for those that are not genuine."""
        nonces, epochs = _nonces(counters), (counters >> EPOCH).tolist()
        source, target = sealed.rows.data.cast("B"), out.data.cast("B")
        starts = (sealed.index * sealed.rows.shape[1]).tolist()
        sizes = sealed.lengths.tolist()
        for row in np.flatnonzero(good).tolist():
            start, stop = starts[row], starts[row] + sizes[row]
            body = start + HEADER_SIZE
            try:
                self._keys.of(epochs[row]).decrypt_into(
                    nonces[row * _NONCE : (row + 1) * _NONCE],
                    source[body:stop],
                    source[start:body],
                    target[body : stop - TAG],
                )
            except InvalidTag:
                good[row] = False


def _nonce(counter: int) -> bytes:
    return bytes(4) + counter.to_bytes(8, "little")


def _nonces(counters: Counters) -> memoryview:
    """Concatenated, _NONCE bytes each."""
    nonces = np.zeros((len(counters), _NONCE), np.uint8)
    nonces[:, 4:] = counters.astype("<i8").view(np.uint8).reshape(-1, 8)
    return nonces.data.cast("B")
