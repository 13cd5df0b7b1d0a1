"""The tables that C keeps: whose rows they are, and what C refuses to write."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcpd.collectives.segment_sum import SegmentSum
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import Header, Key, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.library import TRANSFER
from dlcpd.io.datapath.open_transfers import OpenTransfers
from tests.checks import Measured
from tests.datapath.ring import CANARY, MARGIN, Message, fill, new_ring
from tests.datapath.sanitized import build, environment
from tests.io.batches import data_path

ROOT = Path(__file__).parents[2]
SEGMENT = 64
TOKEN = 7


@pytest.mark.check(106, "a row of a table is in use exactly as long as a transfer has its address")
@pytest.mark.timeout(300)
def test_the_tables_and_their_model_agree_under_sanitizers(
    tmp_path: Path, measured: Measured
) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    tests = ["tests/datapath/test_table_model.py", "tests/datapath/test_fields.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=environment(build(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "runtime error" not in said and "AddressSanitizer" not in said
    measured(done.stdout.strip().splitlines()[-1])


class Sum:
    """A sum of two operands that come, three segments long, with one of them open."""

    def __init__(self) -> None:
        found = data_path(COMPILED)
        assert found is not None
        self.library = found.library
        self.table = OpenTransfers(found.library, 16)
        self.ring = new_ring(Compiled(found.library, self.table))
        self.wholes = [np.full(3 * SEGMENT + 2 * MARGIN, CANARY, np.uint8) for _ in range(3)]
        target, *operands = [whole[MARGIN:-MARGIN] for whole in self.wholes]
        self.sum = SegmentSum(target, operands, 2, SEGMENT)
        receiver = TransferReceiver(3)
        self.incoming = Incoming(Key(0, 1, 0), 1, receiver, operands[0], SEGMENT, self.sum, 0)
        self.table.open(TOKEN, self.incoming)
        self.row = self.table.rows.rows[self.incoming.handle]
        self.sum_row = self.table.sums.table.rows[self.row["sum"]]

    def untouched(self) -> bool:
        received, here = self.incoming.receiver.received, self.sum.here
        return (
            all((w == CANARY).all() for w in self.wholes) and not received.any() and not here.any()
        )

    def add(self, segment: int, offset: int, size: int, data: Bytes) -> int:
        at = self.table.rows.at + self.incoming.handle * TRANSFER.itemsize
        said: int = self.library.dlcpd_add(
            self.table.at, at, segment, offset, data.ctypes.data, size
        )
        return said

    def receive(self, segment: int = 0) -> Counter[str]:
        """A segment comes; what was counted for it."""
        counters: Counter[str] = Counter()
        head = Header(Kind.DATA, TOKEN, 1, segment=segment)
        fill(self.ring, [Message([head.pack() + bytes(SEGMENT)])])
        for batch in self.ring.digest(1)[0]:
            for group in batch.groups(counters):
                group.place(self.incoming)
        return counters


@pytest.mark.check(108, "an operand or segment beyond its sum is refused and counted")
@pytest.mark.parametrize(
    ("segment", "offset", "size"),
    [(3, 0, SEGMENT), (0xFFFFFFFF, 0, SEGMENT), (0, 3 * SEGMENT, 4), (0, 3 * SEGMENT - 4, 8),
     (0, (1 << 64) - SEGMENT, SEGMENT), (1, 0, 0xFFFFFFFF)],
)  # fmt: skip
def test_a_segment_beyond_its_sum_is_refused(segment: int, offset: int, size: int) -> None:
    mine = Sum()
    assert mine.add(segment, offset, size, np.zeros(4096, np.uint8)) == 0
    assert mine.untouched()
    assert mine.add(2, 2 * SEGMENT, SEGMENT, np.zeros(SEGMENT, np.uint8)) == 1


@pytest.mark.check(108, "an operand or segment beyond its sum is refused and counted")
@pytest.mark.parametrize(
    ("where", "field", "value"),
    [("row", "operand", 2), ("row", "operand", 0xFFFFFFFF), ("row", "sum", 1024),
     ("row", "sum", -2), ("row", "sum", 5), ("row", "generation", 9), ("sum_row", "generation", 0),
     ("sum_row", "count", 0), ("sum_row", "count", 65), ("sum_row", "segments", 0),
     ("sum_row", "size", SEGMENT - 4)],
)  # fmt: skip
def test_a_row_that_does_not_fit_its_sum_is_refused(where: str, field: str, value: Any) -> None:
    """Whatever brought it about: the segment is not written, the datagram is counted."""
    mine = Sum()
    row = getattr(mine, where)
    before = row[field].copy()
    row[field] = value
    assert mine.receive()["place"] == 1
    assert mine.untouched()
    row[field] = before
    assert mine.receive()["place"] == 0
    assert mine.incoming.receiver.received[0], "once the row is right it is taken in"


@pytest.mark.check(108, "an operand or segment beyond its sum is refused and counted")
def test_a_segment_that_all_operands_have_is_refused() -> None:
    mine = Sum()
    mine.sum.here[0] = 2
    assert mine.receive()["place"] == 1
    assert not mine.incoming.receiver.received[0] and mine.sum.here[0] == 2
