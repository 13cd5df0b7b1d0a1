"""The compiled data path as an engine holds it: one library and one table for all its paths."""

import ctypes
from collections import Counter
from typing import NamedTuple

import numpy as np

from dlcpd.core.wire import nh
from dlcpd.core.wire.datagram import Bytes
from dlcpd.io.datapath.library import Library, choose
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.udp.mmsg import address


class Compiled(NamedTuple):
    """The library and the table, for each `UdpPath`."""

    library: Library
    table: OpenTransfers

    def hash_rows(self, rows: Bytes, key: nh.Key) -> nh.Values:
        """As `nh.of_rows`, which handles the rows that C must not: in pieces, or longer than the
        key."""
        if rows.strides[1] != 1 or rows.shape[1] > key.nbytes:
            return nh.of_rows(rows, key)
        out = np.empty(len(rows), np.uint64)
        self.library.dlcpd_nh_rows(
            ctypes.c_void_p(rows.ctypes.data),
            len(rows),
            rows.strides[0],
            rows.shape[1],
            address(key),
            address(out),
        )
        return out


def compiled(setting: str, counters: Counter[str] | None = None) -> Compiled | None:
    """The data path for `setting`, one of choices.CHOICES; None: numpy does the work.

    `counters` counts what C refuses. Raises: BadConfig.
    """
    library = choose(setting)
    return None if library is None else Compiled(library, OpenTransfers(library, counters=counters))
