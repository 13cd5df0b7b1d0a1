"""The table of sums that the compiled data path adds up segment by segment."""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Final

from dlcpd.core.transfer.incoming import Sum
from dlcpd.core.wire.datagram import Bytes
from dlcpd.io.datapath.library import MAX_OPERANDS, NONE, SUM
from dlcpd.io.datapath.table import Table
from dlcpd.io.udp.mmsg import address

MAX_SUMS: Final = 1024  # sums beyond it are added up when all of their operands are here
_MAX_GENERATION: Final = 0xFFFFFFFF  # a u32; 0 is a free row's


@dataclass(slots=True, eq=False)
class HeldSum:
    """A row of the table, and all memory that its addresses point to."""

    sum: Sum
    memory: tuple[Bytes, ...]
    generation: int
    row: int = NONE
    transfers: int = 0  # transfers that use the row


class Sums:
    """A row is held from the first transfer that asks for it to the last that gives it back."""

    def __init__(self, size: int = MAX_SUMS) -> None:
        self.table: Table[HeldSum] = Table(SUM, size)
        self._held: dict[Sum, HeldSum] = {}
        self._generation = 0

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, sum_: Sum) -> HeldSum | None:
        """The row of a sum, for one more transfer, which has to `let_go` of it; None if there is no
        room, or C cannot add it up."""
        held = self._held.get(sum_) or self._take_in(sum_)
        if held is not None:
            held.transfers += 1
        return held

    def _take_in(self, sum_: Sum) -> HeldSum | None:
        target, here, operands = sum_.target, sum_.here, sum_.operands
        count, size = len(operands), len(target)
        if count > MAX_OPERANDS or not len(here) or {*map(len, operands)} != {size}:
            return None
        self._generation = self._generation % _MAX_GENERATION + 1
        held = HeldSum(sum_, (target, here, *operands), self._generation)
        row = _fields(count).pack(
            address(target),
            address(here),
            size,
            len(here),
            count,
            sum_.divide_by,
            self._generation,
            0,
            *map(address, operands),
        )
        held.row = self.table.hold(held, row)
        if held.row == NONE:
            return None
        self._held[sum_] = held
        return held

    def let_go(self, held: HeldSum) -> None:
        """One transfer that used the row is closed: C does not know it any more."""
        held.transfers -= 1
        if not held.transfers:
            self.table.release(held.row)
            del self._held[held.sum]


@cache
def _fields(operands: int) -> struct.Struct:
    """The layout of struct sum, up to `operands` operands."""
    return struct.Struct(f"<QQIIIIII{operands}Q")
