"""Encrypted datagrams: vectors, both ends, and everything that must not pass."""

import json
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram, TooMany
from dlcpd.core.wire import aead, header_batch
from dlcpd.core.wire.aead import (
    COUNTERS,
    EPOCH,
    LEAST,
    TAG,
    Datagrams,
    Keys,
    KeySpent,
    Opener,
    Sealer,
    shared_key,
)
from dlcpd.core.wire.header import HEADER_SIZE, SEALED, Header, Kind

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "header.json").read_text())
KEY = shared_key(b"the receiver's", b"the sender's")
HEAD = Header(Kind.DATA, 0xABC, operation=3, stream=1, transfer=2, path=5, packet_number=77)
SIZE = 128  # bytes of a segment


def by_hand(receiver: bytes, sender: bytes, data: bytes, counter: int) -> bytes:
    """The specification, with GCM as others have it in parts."""
    shared = blake2b(sender, key=receiver, person=b"dlcpd data", digest_size=32).digest()
    epoch = (counter >> 24).to_bytes(8, "little")
    key = blake2b(epoch, key=shared, person=b"dlcpd data epoch", digest_size=32).digest()
    field = counter.to_bytes(8, "little")
    gcm = Cipher(algorithms.AES(key), modes.GCM(bytes(4) + field)).encryptor()
    head = data[:SEALED] + field
    gcm.authenticate_additional_data(head)
    return head + gcm.update(data[HEADER_SIZE:]) + gcm.finalize() + gcm.tag


def counter_of(data: bytes) -> int:
    return int.from_bytes(data[SEALED:HEADER_SIZE], "little")


def plain(data: bytes) -> bytes:
    """What of a datagram is the same before and after."""
    return data[:SEALED] + data[HEADER_SIZE:]


def batch(count: int, tail: int = 0) -> tuple[header_batch.Words, np.ndarray, np.ndarray]:
    """Headers, payload and segments of a transfer."""
    payload = np.random.default_rng(count).integers(0, 256, count * SIZE + tail, np.uint8)
    segments = np.arange(count + bool(tail), dtype=np.intp)
    none = np.zeros(len(segments), np.uint8)
    return header_batch.build(HEAD, segments, none, none), payload, segments


def sealed_batch(sealer: Sealer, count: int, tail: int = 0) -> tuple[list[bytes], list[bytes]]:
    """Datagrams as they were, and as they go out."""
    words, payload, segments = batch(count, tail)
    room = np.zeros(payload.size + TAG * len(segments), np.uint8)
    body = sealer.seal(words, payload, segments, SIZE, room).tobytes()
    before, after, at = [], [], 0
    for row, word in enumerate(words):
        content = payload[row * SIZE : (row + 1) * SIZE].tobytes()
        before.append(word.tobytes() + content)
        after.append(word.tobytes() + body[at : at + len(content) + TAG])
        at += len(content) + TAG
    assert at == len(body)
    return before, after


def opened_rows(opener: Opener, datagrams: list[bytes]) -> tuple[list[bytes | None], int]:
    """What a ring would make of them: gaps between rows, and rows wider than what is in them."""
    rows = np.zeros((2 * len(datagrams), max(map(len, datagrams)) + 3), np.uint8)
    index = np.arange(0, 2 * len(datagrams), 2, dtype=np.intp)
    for row, data in zip(index.tolist(), datagrams, strict=True):
        rows[row, : len(data)] = np.frombuffer(data, np.uint8)
    lengths = np.array([len(data) for data in datagrams], np.intp)
    out = np.zeros_like(rows)
    out[:, :HEADER_SIZE] = rows[:, :HEADER_SIZE]
    words = header_batch.parse(rows[index, :HEADER_SIZE])
    good, replayed = opener.open_rows(words, Datagrams(rows, index, lengths), out)
    found = zip(index.tolist(), lengths.tolist(), good.tolist(), strict=True)
    return [out[r, : n - TAG].tobytes() if fine else None for r, n, fine in found], replayed


@pytest.mark.parametrize("vector", VECTORS["encryption"], ids=lambda v: v["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    secrets = bytes.fromhex(vector["receiver"]), bytes.fromhex(vector["sender"])
    data, before = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["plain"])
    counter = counter_of(data)
    assert by_hand(*secrets, before, counter) == data
    assert Sealer(shared_key(*secrets), counter - 1).sealed(before) == data
    assert plain(Opener(shared_key(*secrets)).opened(data)) == plain(before)


@given(st.binary(max_size=200), st.sampled_from(list(Kind)), st.integers(1, 1 << EPOCH))
def test_a_datagram_comes_back(body: bytes, kind: Kind, counter: int) -> None:
    data = HEAD._replace(kind=kind).pack() + body
    sent = Sealer(KEY, counter - 1).sealed(data)
    assert len(sent) == len(data) + TAG
    assert sent[:SEALED] == data[:SEALED]
    assert counter_of(sent) == counter
    assert plain(Opener(KEY).opened(sent)) == plain(data)
    again, replayed = opened_rows(Opener(KEY), [sent])
    assert again[0] is not None and plain(again[0]) == plain(data)
    assert replayed == 0


@pytest.mark.parametrize("tail", [0, 8, SIZE - 8])
def test_batches_are_what_single_datagrams_are(tail: int) -> None:
    before, after = sealed_batch(Sealer(KEY), 5, tail)
    assert after == [
        by_hand(b"the receiver's", b"the sender's", d, n + 1) for n, d in enumerate(before)
    ]
    assert opened_rows(Opener(KEY), after) == (before, 0)
    one = Opener(KEY)
    assert [one.opened(data) for data in after] == before


def test_segments_that_do_not_follow_each_other() -> None:
    words, payload, _ = batch(6)
    segments = np.array([4, 1, 5], np.intp)
    room = np.zeros(3 * (SIZE + TAG), np.uint8)
    body = Sealer(KEY).seal(words[:3], payload, segments, SIZE, room).reshape(3, -1)
    opener = Opener(KEY)
    for head, row, segment in zip(words, body, segments.tolist(), strict=False):
        data = opener.opened(head.tobytes() + row.tobytes())
        assert data[HEADER_SIZE:] == payload[segment * SIZE : (segment + 1) * SIZE].tobytes()


def test_a_segment_of_nothing() -> None:
    words, _, _ = batch(1)
    segments, nothing = np.zeros(1, np.intp), np.zeros(0, np.uint8)
    body = Sealer(KEY).seal(words, nothing, segments, SIZE, np.zeros(TAG, np.uint8))
    data = words.tobytes() + body.tobytes()
    assert opened_rows(Opener(KEY), [data]) == ([words.tobytes()], 0)


def test_no_counter_is_used_twice_whatever_is_sent_again() -> None:
    sealer = Sealer(KEY)
    seen = [counter_of(sealer.sealed(HEAD.pack())) for _ in range(3)]
    for _ in range(2):
        seen += map(counter_of, sealed_batch(sealer, 4, 8)[1])
    seen.append(counter_of(sealer.sealed(HEAD.pack())))
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.NACK])
def test_any_flipped_bit_is_refused_and_leaves_no_trace(kind: Kind) -> None:
    good = Sealer(KEY).sealed(HEAD._replace(kind=kind).pack() + bytes(range(9)))
    one, rows = Opener(KEY), Opener(KEY)
    for bit in range(8 * len(good)):
        wrong = bytearray(good)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedDatagram):
            one.opened(bytes(wrong))
        found, replayed = opened_rows(rows, [bytes(wrong)])
        assert found == [None], bit
        assert replayed <= (counter_of(bytes(wrong)) == 0)
    assert one.opened(good) and opened_rows(rows, [good])[0][0]


def test_what_is_shorter_longer_or_in_clear_is_refused() -> None:
    good = Sealer(KEY).sealed(HEAD.pack() + bytes(32))
    for wrong in (
        good[:-1],
        good + b"\0",
        good[:LEAST],
        HEAD.pack() + bytes(32),
        HEAD._replace(checksum=5).pack() + bytes(32),
    ):
        with pytest.raises(MalformedDatagram):
            Opener(KEY).opened(wrong)
        assert opened_rows(Opener(KEY), [wrong])[0] == [None]


@given(st.binary(min_size=LEAST, max_size=300), st.integers(0, 1 << 25))
def test_any_bytes_are_refused(data: bytes, counter: int) -> None:
    opener = Opener(KEY)
    near = data[:SEALED] + counter.to_bytes(8, "little") + data[HEADER_SIZE:]
    for each in (data, near):
        with pytest.raises(MalformedDatagram):
            opener.opened(each)
        assert opened_rows(opener, [each])[0] == [None]


def test_each_direction_session_and_secret_has_keys_of_its_own() -> None:
    good = Sealer(KEY).sealed(HEAD.pack())
    for other in (
        shared_key(b"the sender's", b"the receiver's"),
        shared_key(b"the receiver's", b"another"),
        shared_key(b"another", b"the sender's"),
    ):
        with pytest.raises(MalformedDatagram, match="checksum"):
            Opener(other).opened(good)


def test_what_has_come_does_not_come_again() -> None:
    _, sent = sealed_batch(Sealer(KEY), 8)
    opener = Opener(KEY)
    assert None not in opened_rows(opener, sent)[0]
    for data in sent:
        with pytest.raises(MalformedDatagram, match="replayed"):
            opener.opened(data)
    assert opened_rows(opener, sent) == ([None] * 8, 8)


def test_twice_in_a_batch_is_once() -> None:
    before, sent = sealed_batch(Sealer(KEY), 2)
    found, replayed = opened_rows(Opener(KEY), [sent[0], sent[1], sent[0]])
    assert found == [before[0], before[1], None]
    assert replayed == 1


def test_a_forgery_does_not_take_the_place_of_what_it_imitates() -> None:
    before, sent = sealed_batch(Sealer(KEY), 1)
    forged = sent[0][:-1] + bytes([sent[0][-1] ^ 1])
    found, replayed = opened_rows(Opener(KEY), [forged, sent[0]])
    assert found == [None, before[0]]
    assert replayed == 0


def test_keys_change_within_a_batch() -> None:
    border = 1 << EPOCH
    before, sent = sealed_batch(Sealer(KEY, border - 3), 6, 8)
    assert [counter_of(data) - border for data in sent] == [-2, -1, 0, 1, 2, 3, 4]
    opener = Opener(KEY)
    assert opened_rows(opener, sent[2:4]) == (before[2:4], 0)
    assert opened_rows(opener, [*sent[:2], *sent[4:]]) == ([*before[:2], *before[4:]], 0)
    assert before[0] != before[2]


def test_three_keys_are_kept() -> None:
    keys = Keys(KEY)
    first = keys.of(0)
    assert keys.of(0) is first
    latest = [keys.of(epoch) for epoch in (1, 2, 3)]
    assert [keys.of(epoch) for epoch in (1, 2, 3)] == latest
    assert keys.of(0) is not first


def test_a_datagram_far_ahead_is_none_of_its_sender() -> None:
    """Though it is genuine: it would have receivers derive keys for whoever makes numbers up."""
    far = Sealer(KEY, 2 << EPOCH).sealed(HEAD.pack())
    opener = Opener(KEY)
    with pytest.raises(MalformedDatagram, match="checksum"):
        opener.opened(far)
    assert opened_rows(opener, [far]) == ([None], 0)
    opener.opened(Sealer(KEY, 1 << EPOCH).sealed(HEAD.pack()))
    assert opener.opened(far)


def test_counters_end() -> None:
    sealer = Sealer(KEY, COUNTERS - 4)
    words, payload, segments = batch(4)
    with pytest.raises(KeySpent):
        sealer.seal(words, payload, segments, SIZE, np.zeros(4096, np.uint8))
    last = [counter_of(sealer.sealed(HEAD.pack())) for _ in range(3)]
    assert last[-1] == COUNTERS - 1
    with pytest.raises(TooMany, match="session"):
        sealer.sealed(HEAD.pack())


def test_no_counter_beyond_the_last_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = Sealer(KEY, 1 << EPOCH).sealed(HEAD.pack())
    monkeypatch.setattr(aead, "COUNTERS", 1 << EPOCH)
    opener = Opener(KEY)
    with pytest.raises(MalformedDatagram, match="checksum"):
        opener.opened(beyond)
    assert opened_rows(opener, [beyond]) == ([None], 0)


def test_some_of_the_datagrams() -> None:
    all_of = Datagrams(np.zeros((3, 4), np.uint8), np.arange(3), np.array([1, 2, 3]))
    some = all_of.some(np.array([0, 2]))
    assert some.index.tolist() == [0, 2] and some.lengths.tolist() == [1, 3]
    assert replace(some).rows is all_of.rows
