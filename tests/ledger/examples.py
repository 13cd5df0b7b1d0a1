"""One of every record of a ledger, and a file with all of them."""

import numpy as np

from dlcpd.ledger.frames import frame
from dlcpd.ledger.masks import pack, pack_paths
from dlcpd.ledger.records import (
    Ended,
    HostRow,
    Kept,
    MissingRow,
    Opening,
    Plan,
    Rank,
    Record,
)

OPENING = Opening(3, "0", "job", 5, 0, 0, 1, 0, 1, [Rank(1, "host", "a", "b")])
PLAN = Plan(
    1,
    "name",
    "all_reduce",
    "direct",
    "0" * 16,
    4096,
    [],
    1,
    "float32",
    "sum",
    0.1,
    0,
    [HostRow(0, 0), HostRow(1, 1)],
    1 << 20,
    0,
    1,
    "",
)
ROW = MissingRow(1, 0, 64, 64, pack(np.array([3, 9]), 64), pack_paths({0: 2}))
ENDED = Ended(1, 7, 6, 0, 1, 1.0, [3], [ROW], [ROW], b"abcd", b"efgh")
KEPT = Kept(3, 0, 64, 10, 1.0, pack(np.array([9]), 10), bytes(64), 0)
RECORDS: list[Record] = [OPENING, KEPT, PLAN, ENDED]
FILE = b"".join(map(frame, RECORDS))
