"""The table of open transfers that the compiled data path looks into."""

import struct
from typing import Final

import numpy as np

from dlcpd.core.transfer.incoming import Incoming
from dlcpd.io.datapath.library import NONE, TABLE, TRANSFER, Library
from dlcpd.io.udp.mmsg import address

MAX_OPEN: Final = 4096  # transfers; what is beyond it is placed by numpy
_WANTED: Final = struct.Struct("<QIHHQQIIIIIi")
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
        )  # fmt: skip
        row = self._library.dlcpd_open(self.at, self._wanted_at)
        if row != NONE:
            self.opened += 1
            incoming.handle, incoming.opened = row, self.opened
            self._open[row] = incoming

    def refresh(self, incoming: Incoming) -> None:
        if incoming.handle != NONE:
            self._missing[incoming.handle] = incoming.receiver.missing
            self._least_round[incoming.handle] = incoming.receiver.least_round

    def close(self, incoming: Incoming) -> None:
        if incoming.handle != NONE:
            self._library.dlcpd_close(self.at, incoming.handle)
            del self._open[incoming.handle]
            incoming.handle = NONE
