"""C and numpy agree on every datagram: what is refused, what is a group, what lands where."""

import json
import random
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.core.wire.header import HEADER_SIZE, Flag, Header, Key, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.open_transfers import OpenTransfers
from tests.datapath.ring import (
    CANARY,
    MARGIN,
    Message,
    Receiver,
    as_rows,
    both,
    fill,
    new_ring,
)
from tests.io.batches import data_path

SEGMENT: Final = 64
TOKENS: Final = (7, 9)
VECTORS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "header.json").read_text()
)["header"]


@pytest.fixture(scope="module")
def library() -> Compiled:
    found = data_path(COMPILED)
    assert found is not None
    return found


@pytest.fixture
def compiled(library: Compiled) -> Iterator[Compiled]:
    made = Compiled(library.library, OpenTransfers(library.library, 16))
    yield made
    assert len(made.table) == 0


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_every_vector_has_the_scalar_codecs_verdict(
    compiled: Compiled, vector: dict[str, Any]
) -> None:
    data = bytes.fromhex(vector["hex"])
    ring, counters = new_ring(compiled), Counter[str]()
    fill(ring, [Message([data])])
    [batch], _ = ring.digest(1)
    groups = batch.groups(counters)
    if len(data) < 2 or data[1] != Kind.DATA:
        assert batch.strays == [data]
    elif "reject" in vector:
        assert counters == {vector["reject"]: 1}
        assert not groups
    else:
        [group] = groups
        assert group.header.pack() == data[:HEADER_SIZE]


# --- whatever may come ------------------------------------------------------------------------

KEYS: Final = [Key(0, 1, 0), Key(0, 1, 1), Key(3, 1, 0), Key(0, 2, 0)]
sizes = st.integers(0, 12 * SEGMENT)


@st.composite
def datagrams(draw: st.DrawFn) -> bytes:
    """Mostly segments that belong somewhere; some of wrong length, round or place; some hostile."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=120))
    # One draw: those of a field each take hypothesis twenty times as long as the code under test.
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    segment, key = chance.randint(0, 13), chance.choice(KEYS)
    header = Header(
        Kind.DATA,
        chance.choice([*TOKENS, 1]),
        key.operation,
        key.stream,
        key.transfer,
        segment,
        chance.randint(0, 2),
        chance.randint(0, 31),
        chance.choice([0, Flag.ENDING, Flag.ASK]),
        chance.randint(0, 2),
        chance.choice([0, 1, 1 << 31, chance.randint(0, 1 << 31)]),
        5,
    )
    length = chance.choice([SEGMENT, SEGMENT, SEGMENT, SEGMENT, 5, 0, SEGMENT + 1])
    data = header.pack() + bytes([segment + 1]) * length
    if chance.randint(0, 9) == 0:  # one byte is wrong
        at = chance.randint(0, HEADER_SIZE - 1)
        data = data[:at] + bytes([chance.randint(0, 255)]) + data[at + 1 :]
    return data


@st.composite
def messages(draw: st.DrawFn) -> Message:
    first, *others = draw(st.lists(datagrams(), min_size=1, max_size=12))
    whole = [first, *(d for d in others if len(d) == len(first) > 0)]
    shorter = [d for d in others if 0 < len(d) < len(first)][:1]
    return Message(whole + shorter, draw(st.booleans()))


opens = st.lists(
    st.tuples(
        st.sampled_from(TOKENS),
        st.sampled_from(KEYS),
        sizes,
        st.just(SEGMENT),
        st.sampled_from([-1, -1, 0, 1]),
    ),
    max_size=5,
    unique_by=lambda each: each[:2],
)


@settings(max_examples=400, deadline=None)
@given(sent=st.lists(messages(), max_size=20), opened=opens)
def test_c_does_what_numpy_does(library: Compiled, sent: list[Message], opened: list[Any]) -> None:
    twin, ours = both(library, sent, opened)
    assert +ours.counters == +twin.counters
    assert ours.seen == twin.seen
    assert +ours.placed == +twin.placed
    for key, incoming in twin.transfers.items():
        mine = ours.transfers[key]
        assert mine.receiver.missing == incoming.receiver.missing
        assert (mine.receiver.received == incoming.receiver.received).all()
        marked = np.repeat(mine.receiver.received, SEGMENT)[: len(mine.buffer)]
        assert (mine.buffer[marked] == incoming.buffer[marked]).all()
        assert (mine.buffer[~marked] == CANARY).all()
        around = ours.memories[key][np.r_[:MARGIN, -MARGIN:0]]
        assert (around == CANARY).all()


@settings(max_examples=300, deadline=None)
@given(
    content=st.lists(st.binary(max_size=400), max_size=8),
    strides=st.lists(st.integers(-5, 500), min_size=8, max_size=8),
    lengths=st.lists(st.integers(0, 1 << 17), min_size=8, max_size=8),
)
def test_nothing_that_a_kernel_may_say_leads_astray(
    library: Compiled, content: list[bytes], strides: list[int], lengths: list[int]
) -> None:
    """Strides and lengths that do not fit what is there; run it under sanitizers, too."""
    table = Compiled(library.library, OpenTransfers(library.library, 16))
    ring = new_ring(table)
    fill(ring, [Message([data or b"\0"]) for data in content])
    for number, (stride, length) in enumerate(zip(strides, lengths, strict=True)):
        ring.messages[number]["size"] = length
        ring.control[number, 32:56] = np.frombuffer(
            np.array([20, 0, 17 | 104 << 32], np.uint64).tobytes(), np.uint8
        )
        ring.control[number, 48:52] = np.frombuffer(
            stride.to_bytes(4, "little", signed=True), np.uint8
        )
        ring.messages[number]["control_size"] = 56
    for batch in ring.digest(8)[0]:
        for group in batch.groups(Counter()):
            assert 0 < group.count <= group.size


# --- transfers that open and close while datagrams are under way -------------------------------


def one(segment: int, *, token: int = 7, key: Key = KEYS[0], round_: int = 0) -> bytes:
    head = Header(Kind.DATA, token, key.operation, key.stream, key.transfer, segment, round_)
    return head.pack() + bytes([segment + 1]) * SEGMENT


def test_two_groups_of_a_transfer_that_the_first_opens(compiled: Compiled) -> None:
    ring, receiver = new_ring(compiled), Receiver(compiled)
    fill(ring, [Message([one(0), one(1)]), Message([one(0, token=9)]), Message([one(2)])])
    [batch], _ = ring.digest(3)
    groups = batch.groups(Counter())
    receiver.open(7, KEYS[0], 3 * SEGMENT, SEGMENT)
    incoming = receiver.transfers[7, KEYS[0]]
    assert [groups[at].place(incoming).fresh for at in (0, 2)] == [2, 1]
    assert incoming.receiver.missing == 0
    receiver.close()


def test_what_went_to_a_transfer_that_has_ended_is_not_taken_for_anothers(
    compiled: Compiled,
) -> None:
    """The row of the table may be another's by then, even one of the same key."""
    ring, receiver = new_ring(compiled), Receiver(compiled)
    receiver.open(7, KEYS[0], 3 * SEGMENT, SEGMENT)
    fill(ring, [Message([one(0), one(1)])])
    [batch], _ = ring.digest(1)
    receiver.close()
    receiver.open(7, KEYS[0], 3 * SEGMENT, SEGMENT)
    incoming = receiver.transfers[7, KEYS[0]]
    [group] = batch.groups(Counter())
    assert group.place(incoming) == (0, 2, 0)
    assert incoming.receiver.missing == 3
    assert (incoming.buffer == CANARY).all()
    receiver.close()


def test_a_full_table_leaves_the_rest_to_numpy(library: Compiled) -> None:
    table = Compiled(library.library, OpenTransfers(library.library, 2))
    ring, receiver = new_ring(table), Receiver(table)
    for key in KEYS:
        receiver.open(7, key, 2 * SEGMENT, SEGMENT)
    assert [i.handle for i in receiver.transfers.values()].count(-1) == 2
    fill(ring, [Message([one(0, key=key), one(1, key=key)]) for key in KEYS])
    [batch], _ = ring.digest(len(KEYS))
    receiver.take(batch)
    assert all(i.receiver.missing == 0 for i in receiver.transfers.values())
    receiver.close()
    assert len(table.table) == 0


def test_numpy_places_and_the_table_knows(compiled: Compiled) -> None:
    """Data kept from before the operation: rows, which C must not count a second time."""
    ring, receiver = new_ring(compiled), Receiver(compiled)
    receiver.open(7, KEYS[0], 3 * SEGMENT, SEGMENT)
    incoming = receiver.transfers[7, KEYS[0]]
    for group in as_rows([Message([one(0), one(1)])]).groups(Counter()):
        group.place(incoming)
        compiled.table.refresh(incoming)
    fill(ring, [Message([one(1), one(2)])])
    [batch], _ = ring.digest(1)
    [group] = batch.groups(Counter())
    assert group.place(incoming) == (1, 1, 0)
    assert incoming.receiver.missing == 0
    receiver.close()


def test_an_offer_binds_and_a_veto_frees(compiled: Compiled) -> None:
    ring, receiver = new_ring(compiled), Receiver(compiled)
    receiver.open(7, KEYS[0], 3 * SEGMENT, SEGMENT, offered=0)
    incoming = receiver.transfers[7, KEYS[0]]
    for round_, placed in ((0, (0, 1, 0)), (1, (1, 0, 0))):
        fill(ring, [Message([one(0, round_=round_)])])
        [batch], _ = ring.digest(1)
        [group] = batch.groups(Counter())
        assert group.place(incoming) == placed
    receiver.close()


def test_more_open_transfers_than_buckets_are_all_found(library: Compiled) -> None:
    table = Compiled(library.library, OpenTransfers(library.library, 64))
    ring, receiver = new_ring(table), Receiver(table)
    keys = [Key(0, number, 0) for number in range(64)]
    for key in keys:
        receiver.open(7, key, SEGMENT, SEGMENT)
    closed = [key for number, key in enumerate(keys) if number % 3]
    for key in closed:
        table.table.close(receiver.transfers.pop((7, key)))
    for key in closed[::2]:
        receiver.open(7, key, SEGMENT, SEGMENT)
    for key in keys:
        fill(ring, [Message([one(0, key=key)])])
        [batch], _ = ring.digest(1)
        receiver.take(batch)
    assert all(i.receiver.missing == 0 for i in receiver.transfers.values())
    receiver.close()
    assert len(table.table) == 0


def test_loss_on_purpose_is_about_as_asked(compiled: Compiled) -> None:
    ring, lost = new_ring(compiled, loss=0.2), 0
    for _ in range(20):
        fill(ring, [Message([one(0)] * 64)] * 8)
        for batch in ring.digest(8)[0]:
            lost += batch.lost
    assert 0.15 < lost / (20 * 8 * 64) < 0.25


def test_messages_that_were_not_joined_are_counted_though_a_look_ends_with_fewer(
    compiled: Compiled,
) -> None:
    """C looks until the socket is empty, so its last call fills hardly ever all messages."""
    ring, receiver = new_ring(compiled), Receiver(compiled)
    receiver.open(7, KEYS[0], 40 * SEGMENT, SEGMENT)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        sink.bind(("127.0.0.1", 0))
        for number in range(20):
            source.sendto(one(number), sink.getsockname())
        batches, drained = ring.receive(sink.fileno())
        for batch in batches:
            receiver.take(batch)
    assert drained
    assert ring.full_calls == 20 // len(ring.messages)
    fill(ring, [Message([one(20), one(21)])])
    ring.digest(1)
    assert ring.full_calls == 0
    receiver.close()
