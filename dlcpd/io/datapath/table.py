"""Rows of a struct that C reads: each is free, or held by an owner of all that it points to.

C keeps addresses, and Python frees memory. Only this module joins the two: `hold` writes a row and
takes its owner, whose memory then lives at least as long; `release` clears the row before the owner
may go. No other code writes an address that outlives a call.
"""

from typing import Any, Generic, TypeVar

import numpy as np

from dlcpd.io.datapath.library import NONE
from dlcpd.io.udp.mmsg import address

Owner = TypeVar("Owner")


class Table(Generic[Owner]):
    """`size` rows, which begin at address `at` and never move. `rows` is their memory as a numpy
    array: for fields that are not addresses."""

    def __init__(self, layout: np.dtype[Any], size: int) -> None:
        self.rows = np.zeros(size, layout)
        self.at = address(self.rows)
        self._row_size = layout.itemsize
        self._memory = self.rows.view(np.uint8).data
        self._cleared = bytes(layout.itemsize)
        self._free = list(range(size - 1, -1, -1))  # the one released last is taken first
        self._owners: dict[int, Owner] = {}

    def __len__(self) -> int:
        """Rows that are held."""
        return len(self._owners)

    def hold(self, owner: Owner, row: bytes) -> int:
        """Write `row` to a free row, and return its number; NONE when all are held. `owner` keeps
        the memory alive to which the addresses point."""
        if not self._free:
            return NONE
        number = self._free.pop()
        at = number * self._row_size
        self._memory[at : at + len(row)] = row
        self._owners[number] = owner
        return number

    def release(self, number: int) -> Owner:
        """Clear a row, and drop its owner. Raises: KeyError where the row is free."""
        owner = self._owners.pop(number)
        at = number * self._row_size
        self._memory[at : at + self._row_size] = self._cleared
        self._free.append(number)
        return owner
