"""Every table that C keeps, against a model: a row is in use exactly as long as it is needed, and
nothing that Python has let go of is written to."""

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlcpd.collectives.segment_sum import SegmentSum
from dlcpd.core.transfer.incoming import Incoming, Sum
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Bytes, DatagramGroup
from dlcpd.core.wire.header import Header, Key, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.library import NONE
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.datapath.sums import MAX_SUMS
from tests.datapath.ring import CANARY, MARGIN, Message, fill, new_ring
from tests.io.batches import data_path

SEGMENT: Final = 8  # bytes: two numbers
TOKEN: Final = 7
EXAMPLES: Final = int(os.environ.get("DLCPD_MODEL_EXAMPLES", "60"))


def library() -> Compiled:
    found = data_path(COMPILED)
    assert found is not None
    return found


def apart(size: int) -> tuple[Bytes, Bytes]:
    """Memory in the middle of other memory, and all of it."""
    whole = np.full(size + 2 * MARGIN, CANARY, np.uint8)
    return whole[MARGIN : MARGIN + size], whole


@dataclass(eq=False, repr=False)
class Added:
    """A sum of the model: operand n is n + 1 everywhere."""

    sum: SegmentSum
    wholes: list[Bytes]
    closed: int = 0  # operands
    complete: bool = True  # all that are closed were
    unopened: list[int] = field(default_factory=list)  # operands

    @property
    def expected(self) -> float:
        return float(sum(range(1, len(self.sum.operands) + 1)))


@dataclass(eq=False, repr=False)
class Open:
    """A transfer of the model."""

    incoming: Incoming
    whole: Bytes
    added: Added | None = None


def payload(transfer: Open) -> bytes:
    operand = transfer.incoming.operand if transfer.added else 40
    return np.full(SEGMENT // 4, operand + 1, np.float32).tobytes()


class Tables(RuleBasedStateMachine):
    """Transfers and sums, opened, filled and closed in any order, with room for few."""

    @initialize(transfers=st.sampled_from([1, 2, 8]), sums=st.integers(0, 3))
    def begin(self, transfers: int, sums: int) -> None:
        found = library()
        self.table = OpenTransfers(found.library, transfers, sums=sums)
        self.size, self.room = transfers, sums
        self.keys = Keyring()
        self.ring = new_ring(Compiled(found.library, self.table), keys=self.keys)
        self.sums: list[Added] = []
        self.open: list[Open] = []
        self.stale: list[
            tuple[DatagramGroup, Open]
        ] = []  # groups of the last look, of closed transfers
        self.graves: list[tuple[Bytes, bytes]] = []  # memory that is free, as it was then
        self.operation = 0

    def _next_key(self) -> Key:
        self.operation += 1
        return Key(0, self.operation, 0)

    # --- what core does -----------------------------------------------------------------

    @rule(coming=st.integers(1, 3), own=st.integers(0, 1), segments=st.integers(1, 3))
    def make_sum(self, coming: int, own: int, segments: int) -> None:
        made = [apart(segments * SEGMENT) for _ in range(coming + own + 1)]
        operands = [view for view, _ in made[1:]]
        for number in range(coming, coming + own):
            operands[number][:] = np.full(segments * 2, number + 1, np.float32).view(np.uint8)
        sum_ = SegmentSum(made[0][0], operands, coming, SEGMENT)
        added = Added(sum_, [whole for _, whole in made], unopened=list(range(coming)))
        self.sums.append(added)

    @precondition(lambda self: any(added.unopened for added in self.sums))
    @rule(data=st.data())
    def open_operand(self, data: st.DataObject) -> None:
        added = data.draw(st.sampled_from([a for a in self.sums if a.unopened]))
        operand = added.unopened.pop()
        incoming = Incoming(
            self._next_key(),
            1,
            TransferReceiver(len(added.sum.here)),
            added.sum.operands[operand],
            SEGMENT,
            added.sum,
            operand,
        )
        self.table.open(TOKEN, incoming)
        self.open.append(Open(incoming, added.wholes[operand + 1], added))

    @rule(segments=st.integers(1, 3))
    def open_plain(self, segments: int) -> None:
        view, whole = apart(segments * SEGMENT)
        incoming = Incoming(self._next_key(), 1, TransferReceiver(segments), view, SEGMENT)
        self.table.open(TOKEN, incoming)
        self.open.append(Open(incoming, whole))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        transfer = data.draw(st.sampled_from(self.open))
        self.open.remove(transfer)
        self.table.close(transfer.incoming)
        self.table.close(transfer.incoming)  # a second time is nothing
        if transfer.added is None:
            self._bury([transfer.whole])
            return
        added = transfer.added
        added.closed += 1
        added.complete &= not transfer.incoming.receiver.missing
        if added.closed == added.sum.coming:
            self._finish(added)

    def _finish(self, added: Added) -> None:
        """All its transfers are closed. Where each was complete, the sum is right."""
        self.sums.remove(added)
        if added.complete:
            added.sum.finish()
            assert (added.sum.target.view(np.float32) == added.expected).all()
        self._bury(added.wholes)

    def _bury(self, wholes: list[Bytes]) -> None:
        self.graves += [(whole, whole.tobytes()) for whole in wholes]

    # --- what arrives -------------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule(data=st.data(), keyed=st.booleans())
    def arrive(self, data: st.DataObject, keyed: bool) -> None:
        """Segments of open transfers, some that they do not have."""
        if keyed:
            self.keys.add(TOKEN + 1, Checksum(b"another" * 3))  # the ring gets another table
        sent = data.draw(
            st.lists(st.tuples(st.sampled_from(self.open), st.integers(0, 4)), max_size=12)
        )
        datagrams = [self._datagram(transfer, segment) for transfer, segment in sent]
        by_key = {transfer.incoming.key: transfer for transfer in self.open}
        fill(self.ring, [Message([datagram]) for datagram in datagrams[:8]])
        self.stale.clear()
        for batch in self.ring.digest(min(len(datagrams), 8))[0]:
            for group in batch.groups(Counter()):
                target = by_key[group.header.key]
                self.stale.append((group, target))
                group.place(target.incoming)

    def _datagram(self, transfer: Open, segment: int) -> bytes:
        key = transfer.incoming.key
        head = Header(Kind.DATA, TOKEN, key.operation, key.stream, key.transfer, segment)
        return head.pack() + payload(transfer)

    @precondition(lambda self: self.open and self.stale)
    @rule(data=st.data(), row=st.integers(-3, 12))
    def place_wrongly(self, data: st.DataObject, row: int) -> None:
        """C is told that a group of the ring belongs to a row that is another's, or none."""
        number = data.draw(st.integers(0, len(self.stale) + 2))
        if 0 <= row < self.size and number < len(self.stale):
            named = self.stale[number][1].incoming
            if named.handle == row:
                return
        before = [transfer.whole.tobytes() for transfer in self.open]
        self.ring.library.dlcpd_place(self.ring.at, number, row)
        assert [transfer.whole.tobytes() for transfer in self.open] == before

    @rule(row=st.integers(-3, 12))
    def link_or_unlink_wrongly(self, row: int) -> None:
        """A row that is free is not closed; one that is open, free or none is not opened."""
        taken = {transfer.incoming.handle for transfer in self.open}
        assert self.ring.library.dlcpd_open(self.table.at, row) == 0
        if row not in taken or row == NONE:
            assert self.ring.library.dlcpd_close(self.table.at, row) == 0

    # --- what holds ---------------------------------------------------------------------

    @invariant()
    def rows_are_held_exactly_as_long_as_they_are_needed(self) -> None:
        rows, sums = self.table.rows.rows, self.table.sums.table.rows
        known = {t.incoming.handle: t for t in self.open if t.incoming.handle != NONE}
        assert len(self.table) == len(known) == min(len(known), self.size)
        assert set(np.flatnonzero(rows["open"]).tolist()) == set(known)
        in_sums = {row: t for row, t in known.items() if rows["sum"][row] != NONE}
        holding = {int(rows["sum"][row]) for row in in_sums}
        assert set(np.flatnonzero(sums["generation"]).tolist()) == holding
        assert len(self.table.sums) == len(holding)
        for row, transfer in in_sums.items():
            assert transfer.added is not None
            sum_row = sums[rows["sum"][row]]
            assert sum_row["generation"] == rows["generation"][row]
            assert sum_row["target"] == transfer.added.sum.target.ctypes.data
        free = [row for row in range(self.size) if row not in known]
        assert not rows[free].view(np.uint8).any()

    @invariant()
    def nothing_is_written_beside_a_place(self) -> None:
        wholes = [t.whole for t in self.open] + [w for a in self.sums for w in a.wholes]
        for whole in wholes:
            assert (whole[:MARGIN] == CANARY).all()
            assert (whole[-MARGIN:] == CANARY).all()

    @invariant()
    def nothing_is_written_to_what_is_free(self) -> None:
        for whole, content in self.graves:
            assert whole.tobytes() == content

    def teardown(self) -> None:
        for transfer in getattr(self, "open", []):
            self.table.close(transfer.incoming)
        if hasattr(self, "table"):
            assert len(self.table) == len(self.table.sums) == 0


Tables.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTables = Tables.TestCase


def test_a_sum_keeps_its_row_while_one_of_its_transfers_has_it() -> None:
    """With the table of sums full, a transfer gets no row. It gives none back when it is closed,
    though another transfer of its sum has got one since."""
    found = library()
    table = OpenTransfers(found.library, 4 * MAX_SUMS)
    ring = new_ring(Compiled(found.library, table))

    def opened(number: int, coming: int, operand: int, sum_: Sum | None = None) -> Incoming:
        memory = np.zeros((coming + 1, 3 * SEGMENT), np.uint8)
        sum_ = sum_ or SegmentSum(memory[0], [*memory[1:]], coming, SEGMENT)
        key, receiver = Key(0, number, 0), TransferReceiver(len(sum_.here))
        made = Incoming(key, 1, receiver, sum_.operands[operand], SEGMENT, sum_, operand)
        table.open(TOKEN, made)
        return made

    first, *others = [opened(number, 1, 0) for number in range(MAX_SUMS)]
    beyond = opened(MAX_SUMS, 3, 0)
    table.close(first)
    second = opened(MAX_SUMS + 1, 3, 2, beyond.sum)
    table.close(beyond)
    last = opened(MAX_SUMS + 2, 1, 0)
    assert len(table.sums) == MAX_SUMS
    head = Header(Kind.DATA, TOKEN, second.key.operation, segment=2)
    fill(ring, [Message([head.pack() + bytes([1]) * SEGMENT])])
    for batch in ring.digest(1)[0]:
        for group in batch.groups(Counter()):
            assert group.place(second).fresh == 1
    assert (second.buffer[2 * SEGMENT :] == 1).all()
    for each in (*others, second, last):
        table.close(each)
    assert len(table) == len(table.sums) == 0
