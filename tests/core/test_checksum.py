"""Checksums: vectors, a scalar specification in plain integers, and numpy, which follows both."""

import json
from hashlib import blake2b, shake_128
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.encoding import RawEncoder
from nacl.hash import siphash24

from dlcpd.core.wire import header_batch
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.header import HEADER_SIZE, SEALED, Header, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "header.json").read_text())
SECRET = b"0123456789abcdef"
KEY = Checksum(SECRET)
HEAD = Header(Kind.DATA, 0xABC, operation=3, stream=1, transfer=2, path=5, packet_number=77)
U32, U64 = (1 << 32) - 1, (1 << 64) - 1


def scalar_nh(data: bytes, key: bytes) -> int:
    """Word by word, as the paper has it."""
    total = 0
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8].ljust(8, b"\0"), "little")
        k = int.from_bytes(key[at : at + 8], "little")
        low = (word & U32) + (k & U32) & U32
        high = (word >> 32) + (k >> 32) & U32
        total += low * high
    return total & U64


def scalar(secret: bytes, data: bytes) -> int:
    """The specification; SipHash and BLAKE2b are others' implementations."""
    head, body = data[:SEALED], data[HEADER_SIZE:]
    if data[1] != Kind.DATA:
        key = blake2b(secret).digest()
        return int.from_bytes(blake2b(head + body, key=key, digest_size=8).digest(), "little")
    material = shake_128(b"segments" + secret).digest(16 + SEALED + MAX_SEGMENT)
    prf, key = material[:16], material[16:]
    total = scalar_nh(head, key) + scalar_nh(body, key[SEALED:]) & U64
    about = data[24:28] + len(body).to_bytes(2, "little") + data[3:4]
    tag = siphash24(total.to_bytes(8, "little") + about, prf, encoder=RawEncoder)
    return int.from_bytes(tag, "little")


@pytest.mark.parametrize("vector", VECTORS["checksum"], ids=lambda v: v["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    data, secret = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["secret"])
    written = Header.unpack_untrusted(data).checksum
    assert scalar(secret, data) == written
    assert Checksum(secret).of(data) == written
    assert Checksum(secret).sealed(data[:SEALED] + bytes(8) + data[HEADER_SIZE:]) == data


@given(st.binary(max_size=200), st.sampled_from([Kind.DATA, Kind.CREDIT]), st.integers(0, 15))
def test_numpy_follows_the_scalar_specification(body: bytes, kind: Kind, path: int) -> None:
    data = HEAD._replace(kind=kind, path=path).pack() + body
    assert KEY.of(data) == scalar(SECRET, data)


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.NACK])
def test_any_flipped_bit_shows(kind: Kind) -> None:
    data = KEY.sealed(HEAD._replace(kind=kind).pack() + bytes(range(41)))
    keys = Keyring()
    keys.add(HEAD.token, KEY)
    assert keys.is_genuine(HEAD.token, Header.unpack_untrusted(data).checksum, data)
    for bit in range(16, 8 * len(data)):  # not version and kind, which are refused before
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        wrong = bytes(changed)
        checksum = int.from_bytes(wrong[SEALED:HEADER_SIZE], "little")
        assert not keys.is_genuine(HEAD.token, checksum, wrong), bit


def test_length_number_path_and_secret_matter() -> None:
    same = [HEAD.pack() + bytes(8), HEAD.pack() + bytes(9), HEAD.pack() + bytes(16)]
    same += [HEAD._replace(packet_number=78).pack() + bytes(8)]
    same += [HEAD._replace(path=4).pack() + bytes(8)]
    assert len({KEY.of(data) for data in same}) == len(same)
    assert Checksum(b"another secret..").of(same[0]) != KEY.of(same[0])


@pytest.mark.parametrize("size", [64, 192, 1408])
@pytest.mark.parametrize("last", [0, 1, 8, 63])
@pytest.mark.parametrize("order", ["up", "down", "gaps", "one"])
def test_sealed_batches_are_sealed_datagrams(size: int, last: int, order: str) -> None:
    payload = np.random.default_rng(size + last).integers(0, 256, 9 * size + last, np.uint8)
    whole = {"up": range(9), "down": range(8, -1, -1), "gaps": range(0, 9, 2), "one": [3]}[order]
    segments = np.array([*whole, *([9] if last else [])])
    count = len(segments)
    words = header_batch.build(
        HEAD, segments, np.full(count, 4, np.uint8), np.ones(count, np.uint8)
    )
    KEY.seal(words, payload, segments, size)
    for row, segment in zip(words, segments.tolist(), strict=True):
        data = row.tobytes() + payload[segment * size : (segment + 1) * size].tobytes()
        assert Header.unpack_untrusted(data).checksum == scalar(SECRET, data)


def rows_of(datagrams: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width = max(map(len, datagrams)) + 3
    rows = np.full((len(datagrams), width), 0xEE, np.uint8)
    for row, data in zip(rows, datagrams, strict=True):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    lengths = np.array([len(data) for data in datagrams], np.intp)
    return header_batch.parse(rows[:, :HEADER_SIZE]), rows, lengths


@given(
    st.lists(
        st.tuples(st.binary(max_size=40), st.booleans(), st.sampled_from([1, 2, 3])),
        min_size=1,
        max_size=12,
    )
)
def test_of_rows_only_the_genuine_remain(sent: list[tuple[bytes, bool, int]]) -> None:
    """Of tokens 1 and 2 the keys are known; what comes with 3 is for core to refuse."""
    keys = Keyring()
    for token in (1, 2):
        keys.add(token, Checksum(b"secret of token %d" % token))
    datagrams, expected = [], []
    for body, corrupt, token in sent:
        key = Checksum(b"secret of token %d" % token)
        data = bytearray(key.sealed(HEAD._replace(token=token).pack() + body))
        if corrupt:
            data[SEALED if not body else -1] ^= 0x10
        datagrams.append(bytes(data))
        expected.append(not corrupt or token == 3)
    words, rows, lengths = rows_of(datagrams)
    assert keys.genuine(words, rows, np.arange(len(rows)), lengths).tolist() == expected


def test_a_keyring_forgets() -> None:
    keys = Keyring()
    assert not keys and keys.version == 0
    keys.add(5, KEY)
    assert keys and keys.get(5) is KEY and keys.items() == [(5, KEY)]
    assert not keys.is_genuine(5, 0, HEAD.pack())
    assert keys.is_genuine(6, 0, HEAD.pack())
    version = keys.version
    keys.remove(6)
    assert keys.version == version
    keys.remove(5)
    assert not keys and keys.version > version
