"""The table of open transfers that the compiled data path looks into."""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.transfer.incoming import Incoming, Sum
from dlcpd.io.datapath.library import MAX_OPERANDS, NONE, SUM, TABLE, TRANSFER, Library
from dlcpd.io.udp.mmsg import address

MAX_OPEN: Final = 4096  # transfers; what is beyond it is placed by numpy
MAX_SUMS: Final = 1024  # likewise: what is beyond it is added up when all of it is here
_WANTED: Final = struct.Struct("<QIHHQQIIIIIiQII")
assert _WANTED.size == TRANSFER.itemsize  # noqa: S101  # our own arithmetic


class OpenTransfers:
    """A `Placement`, of all paths of an engine. `opened` counts what was ever opened."""

    def __init__(self, library: Library, size: int = MAX_OPEN) -> None:
        """`size`: a power of two."""
        self._library = library
        self.opened = 0
        self._rows = np.zeros(size, TRANSFER)
        self._rows["next"] = [*range(1, size), NONE]
        self._buckets = np.full(size, NONE, np.int32)
        self._table = np.zeros(1, TABLE)
        self._table[0] = (address(self._rows), address(self._buckets), size - 1, 0)
        self.at = address(self._table)
        self._wanted = bytearray(_WANTED.size)
        self._wanted_at = address(np.frombuffer(self._wanted, np.uint8))
        self._open: dict[int, Incoming] = {}  # holds the memory that C may write to
        self._sums = Sums()
        self._missing, self._least_round = self._rows["missing"], self._rows["least_round"]

    def __len__(self) -> int:
        return len(self._open)

    def open(self, token: int, incoming: Incoming) -> None:
        stream, operation, transfer = incoming.key
        receiver = incoming.receiver
        _WANTED.pack_into(
            self._wanted, 0, token, operation, stream, transfer, address(incoming.buffer),
            address(receiver.received), len(incoming.buffer), incoming.segment_size,
            receiver.segments, receiver.missing, receiver.least_round, NONE,
            self._sums.hold(incoming.sum) if incoming.sum else 0, incoming.operand, 0,
        )  # fmt: skip
        row = self._library.dlcpd_open(self.at, self._wanted_at)
        if row != NONE:
            self.opened += 1
            incoming.handle, incoming.opened = row, self.opened
            self._open[row] = incoming
        elif incoming.sum:
            self._sums.let_go(incoming.sum)

    def refresh(self, incoming: Incoming) -> None:
        if incoming.handle != NONE:
            self._missing[incoming.handle] = incoming.receiver.missing
            self._least_round[incoming.handle] = incoming.receiver.least_round

    def close(self, incoming: Incoming) -> None:
        if incoming.handle != NONE:
            self._library.dlcpd_close(self.at, incoming.handle)
            del self._open[incoming.handle]
            incoming.handle = NONE
            if incoming.sum:
                self._sums.let_go(incoming.sum)


class Sums:
    """Those that open transfers belong to, as C needs them."""

    def __init__(self) -> None:
        self._rows = np.zeros(MAX_SUMS, SUM)
        self._at = address(self._rows)
        self._free = list(range(MAX_SUMS))
        self._held: dict[int, _Held] = {}  # by id; they are alive as long as they are here

    def hold(self, sum_: Sum) -> int:
        """Address of its struct; 0 when there is no room, or it has too many operands."""
        held = self._held.get(id(sum_))
        if held is None:
            if not self._free or len(sum_.operands) > MAX_OPERANDS:
                return 0
            addresses = np.array([address(part) for part in sum_.operands], np.uint64)
            held = self._held[id(sum_)] = _Held(sum_, self._free.pop(), addresses)
            self._rows[held.row] = (
                address(addresses), address(sum_.target), address(sum_.here), len(addresses),
                sum_.divide_by,
            )  # fmt: skip
        held.transfers += 1
        return self._at + held.row * SUM.itemsize

    def let_go(self, sum_: Sum) -> None:
        """One transfer of it is over."""
        held = self._held.get(id(sum_))
        if held is None:
            return
        held.transfers -= 1
        if not held.transfers:
            self._free.append(self._held.pop(id(sum_)).row)


@dataclass(slots=True)
class _Held:
    sum: Sum
    row: int
    addresses: NDArray[np.uint64]
    transfers: int = 0
