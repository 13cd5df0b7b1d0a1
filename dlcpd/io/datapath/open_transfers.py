"""The table of open transfers in which the compiled data path looks up transfers."""

import struct
from collections import Counter
from typing import Final

import numpy as np

from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.wire.bitmap import Bits
from dlcpd.core.wire.datagram import Bytes
from dlcpd.io.datapath.library import NONE, TABLE, TRANSFER, Library
from dlcpd.io.datapath.sums import MAX_SUMS, HeldSum, Sums
from dlcpd.io.datapath.table import Table
from dlcpd.io.udp.mmsg import address

MAX_OPEN: Final = 4096  # transfers; numpy places those beyond it
_FIELDS: Final = struct.Struct("<QIHHQQIIIIIiiIII")
assert _FIELDS.size == TRANSFER.itemsize  # noqa: S101  # constants only
# An open transfer, all memory that C may write to, and its sum's row if it holds one. A tuple: one
# is made for each transfer.
Opened = tuple[Incoming, Bytes, Bits, HeldSum | None]


class OpenTransfers:
    """A `Placement`, of all paths of an engine. `opened` counts all transfers ever opened;
    `counters` counts those that C refused."""

    def __init__(
        self,
        library: Library,
        size: int = MAX_OPEN,
        *,
        sums: int = MAX_SUMS,
        counters: Counter[str] | None = None,
    ) -> None:
        """`size`: transfers, a power of two; `sums`: sums of which they may be operands."""
        self._link, self._unlink = library.dlcpd_open, library.dlcpd_close
        self.opened = 0
        self.counters: Counter[str] = Counter() if counters is None else counters
        self.rows: Table[Opened] = Table(TRANSFER, size)
        self.sums = Sums(sums)
        self._buckets = np.full(size, NONE, np.int32)
        self._table = np.zeros(1, TABLE)
        self._table[0] = (
            self.rows.at,
            address(self._buckets),
            self.sums.table.at,
            size - 1,
            size,
            sums,
            0,
        )
        self.at = address(self._table)
        self._missing = self.rows.rows["missing"]
        self._least_round = self.rows.rows["least_round"]

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, token: int, incoming: Incoming) -> None:
        held = None if incoming.sum is None else self.sums.hold(incoming.sum)
        try:
            packed = self._row(token, incoming, held)
        except struct.error:  # a bug, of a transfer that no datagram can name
            if held is not None:
                self.sums.let_go(held)
            raise
        owner = incoming, incoming.buffer, incoming.receiver.received, held
        row = self.rows.hold(owner, packed)
        if row == NONE:
            if held is not None:
                self.sums.let_go(held)
        elif self._link(self.at, row):
            self.opened += 1
            incoming.handle, incoming.opened = row, self.opened
        else:  # numpy places it
            self._release(row)
            self.counters["placement_refused"] += 1

    def _row(self, token: int, incoming: Incoming, held: HeldSum | None) -> bytes:
        stream, operation, transfer = incoming.key
        receiver, place = incoming.receiver, incoming.buffer
        sum_row, generation = (NONE, 0) if held is None else (held.row, held.generation)
        return _FIELDS.pack(
            token,
            operation,
            stream,
            transfer,
            address(place),
            address(receiver.received),
            len(place),
            incoming.segment_size,
            len(receiver.received),
            receiver.missing,
            receiver.least_round,
            NONE,
            sum_row,
            generation,
            incoming.operand,
            0,
        )

    def _release(self, row: int) -> None:
        held = self.rows.release(row)[3]
        if held is not None:
            self.sums.let_go(held)

    def refresh(self, incoming: Incoming) -> None:
        if incoming.handle != NONE:
            self._missing[incoming.handle] = incoming.receiver.missing
            self._least_round[incoming.handle] = incoming.receiver.least_round

    def close(self, incoming: Incoming) -> None:
        row, incoming.handle = incoming.handle, NONE
        if row != NONE:
            self._unlink(self.at, row)
            self._release(row)
