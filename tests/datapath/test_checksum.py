"""C makes and refuses the same checksums as numpy."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcpd.core.wire import nh
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.header import HEADER_SIZE, SEALED, Header, Key, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.key_table import KeyTable
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.udp.mmsg import address
from tests.datapath.ring import CANARY, Message, Receiver, as_rows, fill, new_ring
from tests.io.batches import data_path

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "header.json").read_text())
SEGMENT, SEGMENTS = 64, 40
TOKENS = (7, 9)  # the key of the first is known


@pytest.fixture
def compiled() -> Compiled:
    found = data_path(COMPILED)
    assert found is not None
    return Compiled(found.library, OpenTransfers(found.library, 16))


def of(compiled: Compiled, checksum: Checksum, data: bytes) -> int:
    """What C says."""
    head = np.frombuffer(bytearray(data[:HEADER_SIZE]), np.uint8)
    body = np.frombuffer(bytearray(b"?" + data[HEADER_SIZE:]), np.uint8)[1:]  # not aligned
    at = address(body) if len(body) else 0
    made: int = compiled.library.dlcpd_checksum(
        address(head), at, len(body), address(checksum.material)
    )
    return made


def test_vectors(compiled: Compiled) -> None:
    data = [v for v in VECTORS["checksum"] if v["hex"][2:4] == "01"]
    assert data
    for vector in data:
        raw = bytes.fromhex(vector["hex"])
        made = of(compiled, Checksum(bytes.fromhex(vector["secret"])), raw)
        assert made == Header.unpack_untrusted(raw).checksum


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 31, 32, 63, 64, 65, 127, 1408, MAX_SEGMENT])
def test_every_length(compiled: Compiled, size: int) -> None:
    body = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    data, key = Header(Kind.DATA, 5, packet_number=size, path=3).pack() + body, Checksum(b"s")
    assert of(compiled, key, data) == key.of(data)


@pytest.mark.parametrize("shape", [(1, 8), (3, 8192), (200, 64)])
def test_rows_for_digests(compiled: Compiled, shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    key = nh.expand(b"key", 8192)
    assert (compiled.hash_rows(rows, key) == nh.of_rows(rows, key)).all()
    assert (compiled.hash_rows(rows[::2], key) == nh.of_rows(rows[::2], key)).all()


def keyring() -> Keyring:
    keys = Keyring()
    keys.add(TOKENS[0], Checksum(b"secret"))
    return keys


def datagrams(random: np.random.Generator) -> tuple[list[bytes], int]:
    """Segments of two transfers, some of the first of them corrupted; how many."""
    out, refused = [], 0
    for number in range(60):
        token, segment = TOKENS[int(random.integers(2))], int(random.integers(SEGMENTS))
        header = Header(Kind.DATA, token, operation=1, segment=segment, packet_number=number)
        data = bytearray(Checksum(b"secret").sealed(header.pack() + bytes([segment]) * SEGMENT))
        if token == TOKENS[0] and random.random() < 0.3:
            at = int(random.choice([2, 22, 23, SEALED, HEADER_SIZE, HEADER_SIZE + SEGMENT - 1]))
            data[at] ^= 1
            refused += 1
        out.append(bytes(data))
    return out, refused


@pytest.mark.parametrize("seed", range(20))
def test_what_was_changed_is_as_if_it_were_lost(compiled: Compiled, seed: int) -> None:
    sent, refused = datagrams(np.random.default_rng(seed))
    messages = [Message(sent[at : at + 10]) for at in range(0, len(sent), 10)]
    in_c, in_numpy = Receiver(compiled), Receiver(None)
    for receiver in (in_c, in_numpy):
        for token in TOKENS:
            receiver.open(token, Key(0, 1, 0), SEGMENT * SEGMENTS, SEGMENT)
    ring = new_ring(compiled, keys=keyring())
    fill(ring, messages)
    [batch], _ = ring.digest(len(messages))
    rows = as_rows(messages)
    rows.keys = keyring()
    in_c.take(batch)
    in_numpy.take(rows)
    in_c.close()
    assert in_c.counters == in_numpy.counters
    assert in_c.counters["checksum"] == refused
    assert in_c.seen == in_numpy.seen
    assert in_c.placed == in_numpy.placed
    for key, memory in in_c.memories.items():
        assert (memory == in_numpy.memories[key]).all()


def test_nothing_of_a_changed_segment_is_written(compiled: Compiled) -> None:
    receiver = Receiver(compiled)
    receiver.open(TOKENS[0], Key(0, 1, 0), SEGMENT, SEGMENT)
    data = bytearray(
        Checksum(b"secret").sealed(Header(Kind.DATA, 7, operation=1).pack() + bytes(64))
    )
    data[-1] ^= 1
    ring = new_ring(compiled, keys=keyring())
    fill(ring, [Message([bytes(data)])])
    [batch], _ = ring.digest(1)
    receiver.take(batch)
    receiver.close()
    [memory] = receiver.memories.values()
    assert (memory == CANARY).all()
    assert receiver.counters == Counter(checksum=1)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 1000])
def test_every_key_is_found(compiled: Compiled, count: int) -> None:
    keys, random = Keyring(), np.random.default_rng(count)
    tokens = {int(each) for each in random.integers(1, 1 << 63, count)}
    for token in tokens:
        keys.add(token, Checksum(b"%d" % token))
    table = KeyTable.of(keys)
    assert bool(table.at) == bool(tokens)
    for token in list(tokens)[:50]:
        good = Checksum(b"%d" % token).sealed(Header(Kind.DATA, token, operation=1).pack())
        bad = good[:SEALED] + bytes(8)
        ring, counters = new_ring(compiled, keys=keys), Counter[str]()
        fill(ring, [Message([good]), Message([bad])])
        [batch], _ = ring.digest(2)
        assert [group.count for group in batch.groups(counters)] == [1]
        assert counters == Counter(checksum=1)


def test_a_ring_follows_its_keyring(compiled: Compiled) -> None:
    keys = Keyring()
    ring = new_ring(compiled, keys=keys)
    bad = Header(Kind.DATA, 7, operation=1).pack()

    def refused() -> int:
        counters = Counter[str]()
        fill(ring, [Message([bad])])
        for batch in ring.digest(1)[0]:
            batch.groups(counters)
        return counters["checksum"]

    assert refused() == 0
    keys.add(7, Checksum(b"secret"))
    assert refused() == 1
    keys.remove(7)
    assert refused() == 0


def test_corruption_is_injected_and_counted(compiled: Compiled) -> None:
    ring = new_ring(compiled, corrupt=1.0)
    sent: list[Any] = [bytes(100) for _ in range(8)]
    fill(ring, [Message([data]) for data in sent])
    [batch], _ = ring.digest(8)
    assert batch.corrupted == 8
    spacing = len(ring.data) // len(ring.messages)
    changed = [int(np.unpackbits(ring.data[at * spacing :][:100]).sum()) for at in range(8)]
    assert changed == [1] * 8
