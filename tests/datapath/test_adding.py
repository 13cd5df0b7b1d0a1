"""Segments added up as they come: numpy's sum, bit by bit, whatever the order of arrival."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.collectives.segment_sum import SegmentSum
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import Header, Key, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.datapath.sums import MAX_SUMS
from dlcpd.numerics.reduce import reduce_in_order
from tests.datapath.ring import CANARY, MARGIN, Message, Receiver, as_rows, fill, new_ring
from tests.io.batches import data_path

SEGMENT: Final = 64
TOKENS: Final = (11, 12, 13)


@pytest.fixture(scope="module")
def library() -> Compiled:
    found = data_path(COMPILED)
    assert found is not None
    return found


def apart(size: int, offset: int) -> tuple[Bytes, Bytes]:
    """Memory in the middle of other memory, and all of it."""
    whole = np.full(size + 2 * MARGIN + offset, CANARY, np.uint8)
    return whole[MARGIN + offset : MARGIN + offset + size], whole


def opened(number: int, sum_: SegmentSum, operand: int) -> Incoming:
    segments = len(sum_.here)
    return Incoming(
        Key(0, 1, 0),
        number,
        TransferReceiver(segments),
        sum_.operands[operand],
        SEGMENT,
        sum_,
        operand,
    )


def datagram(number: int, segment: int, part: Bytes) -> bytes:
    payload = part[segment * SEGMENT : (segment + 1) * SEGMENT].tobytes()
    return Header(Kind.DATA, TOKENS[number], 1, segment=segment).pack() + payload


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_sum_is_numpys_in_any_order(library: Compiled, data: st.DataObject) -> None:
    """Operands from one to three peers and perhaps one that is here, in any order of operands; some
    segments come twice; some groups are placed by numpy; one peer may be cut otherwise. Sums may
    overflow where quotients do not."""
    floats = data.draw(st.integers(1, 100))
    coming = data.draw(st.integers(1, 3))
    own = data.draw(st.booleans()) or coming == 1
    divide_by = data.draw(st.sampled_from([1, 2, 3, 4]))
    seed = data.draw(st.integers(0, 1 << 16))
    random, size = np.random.default_rng(seed), 4 * floats
    top, sizes = np.finfo(np.float32).max, data.draw(st.sampled_from([(-20, 20), (37, 40)]))
    parts = [
        (random.standard_normal(floats) * 10.0 ** random.integers(*sizes, floats))
        .clip(-top, top)
        .astype(np.float32)
        .view(np.uint8)
        for _ in range(coming + own)
    ]
    expected = np.zeros(size, np.uint8)
    reduce_in_order(expected, parts, "float32", "avg", divide_by=divide_by)

    offset = data.draw(st.sampled_from([0, 1, 4]))
    memories = [apart(size, offset) for _ in parts]
    operands = [memory for memory, _ in memories]
    at_own = data.draw(st.integers(0, coming)) if own else -1
    if own:
        operands[at_own][:] = parts[at_own]
    target, around = memories[at_own] if own and data.draw(st.booleans()) else apart(size, offset)
    sum_ = SegmentSum(target, operands, coming, SEGMENT, divide_by)
    table = Compiled(library.library, OpenTransfers(library.library, 16))
    incomings = []
    for number, operand in enumerate(at for at in range(len(parts)) if at != at_own):
        incoming = opened(number, sum_, operand)
        if coming > 1 and data.draw(st.integers(0, 4)) == 0:
            incoming.sum = None  # its segments are of another size than the others'
        table.table.open(TOKENS[number], incoming)
        incomings.append(incoming)

    sent = [(n, s) for n in range(coming) for s in range(len(sum_.here))]
    sent += data.draw(st.lists(st.sampled_from(sent), max_size=5))
    ring, receiver = new_ring(table), Receiver(table)
    receiver.transfers = {
        (TOKENS[number], Key(0, 1, 0)): incoming for number, incoming in enumerate(incomings)
    }
    for number, segment in data.draw(st.permutations(sent)):
        one = [Message([datagram(number, segment, parts[incomings[number].operand])])]
        if data.draw(st.integers(0, 9)) == 0:  # kept from before the operation, say
            receiver.take(as_rows(one))
            table.table.refresh(incomings[number])
        else:
            fill(ring, one)
            for batch in ring.digest(1)[0]:
                receiver.take(batch)
    assert all(incoming.receiver.missing == 0 for incoming in incomings)
    sum_.finish()
    assert target.tobytes() == expected.tobytes()
    for whole in (around, *(whole for _, whole in memories)):
        assert (whole[:MARGIN] == CANARY).all()
        assert (whole[-MARGIN:] == CANARY).all()
    for incoming in incomings:
        table.table.close(incoming)


def test_what_is_added_at_once_is_not_placed(library: Compiled) -> None:
    """Two operands, one of them here: each received byte is touched once."""
    table = Compiled(library.library, OpenTransfers(library.library, 16))
    own, theirs = np.ones(32, np.float32), np.full(32, 2.0, np.float32)
    scratch = np.full(128, CANARY, np.uint8)
    sum_ = SegmentSum(own.view(np.uint8), [own.view(np.uint8), scratch], 1, SEGMENT)
    incoming = opened(0, sum_, 1)
    table.table.open(TOKENS[0], incoming)
    ring = new_ring(table)
    fill(ring, [Message([datagram(0, segment, theirs.view(np.uint8)) for segment in (0, 1)])])
    ring.digest(1)
    assert (own == 3).all()
    assert (scratch == CANARY).all()
    table.table.close(incoming)


def test_sums_beyond_what_the_table_holds_are_done_by_numpy(library: Compiled) -> None:
    table = Compiled(library.library, OpenTransfers(library.library, 2 * MAX_SUMS))
    made: list[tuple[SegmentSum, Incoming]] = []
    for operation in range(MAX_SUMS + 10):
        memory = [np.full(8, n, np.float32).view(np.uint8) for n in (0, 1, 0)]
        sum_ = SegmentSum(memory[0], memory[1:], 1, SEGMENT)
        incoming = opened(0, sum_, 1)
        incoming.key = Key(0, operation, 0)
        table.table.open(TOKENS[0], incoming)
        made.append((sum_, incoming))
    ring, receiver = new_ring(table), Receiver(table)
    payload = np.full(8, 5, np.float32).tobytes()
    for operation, (_, incoming) in enumerate(made):
        receiver.transfers[TOKENS[0], incoming.key] = incoming
        fill(ring, [Message([Header(Kind.DATA, TOKENS[0], operation).pack() + payload])])
        for batch in ring.digest(1)[0]:
            receiver.take(batch)
    for sum_, incoming in made:
        sum_.finish()
        table.table.close(incoming)
        assert (sum_.target.view(np.float32) == 6).all()
    again = opened(0, made[0][0], 1)
    table.table.open(TOKENS[0], again)  # rows of sums that are over are used again
    table.table.close(again)
