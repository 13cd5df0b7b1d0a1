"""Datagrams made of the protocol's fields, with valid tokens, while transfers open and close.

DLCPD_FUZZ_DATAGRAMS says how many, DLCPD_FUZZ_SEED which. Run it under sanitizers, too: see
docs/datapath.md.
"""

import ctypes
import os
from collections import Counter
from typing import Any, Final

import numpy as np

from dlcpd.collectives.segment_sum import SegmentSum
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import HEADER_SIZE, VERSION, Key, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.library import HEADER
from dlcpd.io.datapath.open_transfers import OpenTransfers
from tests.datapath.ring import CANARY, MARGIN, control_messages, new_ring
from tests.io.batches import data_path

DATAGRAMS: Final = int(os.environ.get("DLCPD_FUZZ_DATAGRAMS", "20000"))
SEED: Final = int(os.environ.get("DLCPD_FUZZ_SEED", "1"))
SEGMENT: Final = 64
KEYED, PLAIN = 7, 9  # tokens; what comes with the first has a checksum
SECRET: Final = Checksum(b"a secret of this test")
OPERATIONS: Final = 6
# Values at which something changes, of each field; beside them any value comes now and then.
FIELDS: Final[dict[str, list[int]]] = {
    "version": [VERSION] * 30 + [0, VERSION - 1, 0xFF],
    "kind": [int(Kind.DATA)] * 30 + [0, 2, 9, 0xFF],
    "flags": [0] * 12 + [1, 2, 4, 7, 8], "path": [0] * 12 + [1, 15, 16],
    "stream": [0] * 15 + [1, 0xFFFF],
    "operation": [*range(1, OPERATIONS + 1)] * 2 + [0, 0xFFFFFFFF],
    "token": [KEYED, PLAIN] * 8 + [0, 8], "transfer": [0, 1, 2],
    "segment": [0, 1, 2, 3] * 3 + [4, 4095, 4096, 0xFFFF], "round": [0] * 9 + [1, 255],
    "tag": [0, 0, 16, 16, 31, 31, 32, 255], "number": [0, 1, 0xFFFFFFFF],
    "sent_at": [0, 1, 0xFFFFFFFF],
}  # fmt: skip
LENGTHS: Final = [
    *[HEADER_SIZE + SEGMENT] * 6, HEADER_SIZE + 20, HEADER_SIZE + 20, HEADER_SIZE + 4,
    HEADER_SIZE, HEADER_SIZE - 1, HEADER_SIZE + 2 * SEGMENT, HEADER_SIZE + 8896, HEADER_SIZE + 8897,
]  # fmt: skip


def heads(random: np.random.Generator, count: int) -> Any:
    """Headers with fields at their limits, and some of anything."""
    made = np.zeros(count, HEADER)
    for name, values in FIELDS.items():
        made[name] = np.array(values, np.uint64)[random.integers(0, len(values), count)]
        wild = random.random(count) < 0.01
        made[name][wild] = random.integers(0, 1 << 62, int(wild.sum())).astype(made[name].dtype)
    return made


class Bench:
    """A ring whose table changes all the time, and all memory that C may know."""

    def __init__(self) -> None:
        found = data_path(COMPILED)
        assert found is not None
        self.library = found.library
        self.random = np.random.default_rng(SEED)
        self.keys = Keyring()
        self.table = OpenTransfers(self.library, 16, sums=3)
        self.ring = new_ring(Compiled(self.library, self.table), keys=self.keys)
        self.open: dict[tuple[int, Key], Incoming] = {}
        self.memory: list[Bytes] = []
        self.counters: Counter[str] = Counter()
        self.fresh = self.strays = 0

    def apart(self, size: int) -> Bytes:
        whole = np.full(size + 2 * MARGIN, CANARY, np.uint8)
        self.memory = [*self.memory[-63:], whole]
        return whole[MARGIN : MARGIN + size]

    def change(self) -> None:
        """Some transfers close, others open; keys come and go."""
        for at in [at for at in self.open if self.random.random() < 0.4]:
            self.table.close(self.open.pop(at))
        for operation in self.random.integers(1, OPERATIONS + 1, 3).tolist():
            self._open_some(operation, int(self.random.integers(1, 4)))
        if self.random.random() < 0.2:
            self.keys.remove(KEYED)
        else:
            self.keys.add(KEYED, SECRET)

    def _open_some(self, operation: int, coming: int) -> None:
        """The transfers of an operation, which are operands of a sum or not."""
        size = int(self.random.choice([4, 20, SEGMENT, 2 * SEGMENT, 3 * SEGMENT + 20]))
        segments = -(-size // SEGMENT)
        sum_ = None
        if self.random.random() < 0.6:
            operands = [self.apart(size) for _ in range(coming + 1)]
            sum_ = SegmentSum(self.apart(size), operands, coming, SEGMENT)
        for transfer in range(coming):
            at = (KEYED if transfer % 2 else PLAIN), Key(0, operation, transfer)
            if at in self.open:
                continue
            place = self.apart(size) if sum_ is None else sum_.operands[transfer]
            incoming = Incoming(
                at[1], 1, TransferReceiver(segments), place, SEGMENT, sum_, transfer
            )
            self.table.open(at[0], incoming)
            self.open[at] = incoming

    def fill(self) -> tuple[int, int]:
        """Messages and datagrams that lie in the ring now."""
        spacing, total = len(self.ring.data) // len(self.ring.messages), 0
        messages = int(self.random.integers(1, len(self.ring.messages) + 1))
        for number in range(messages):
            stride = int(self.random.choice(LENGTHS))
            count = int(self.random.integers(1, min(64, spacing // stride) + 1))
            rows = self.random.integers(0, 256, (count, max(stride, HEADER_SIZE)), np.uint8)
            made = heads(self.random, count)
            rows[:, :HEADER_SIZE] = made.view(np.uint8).reshape(count, HEADER_SIZE)
            self._seal(rows[:, :stride])
            short = int(self.random.integers(1, stride + 1)) if self.random.random() < 0.2 else 0
            content = rows[:, :stride].tobytes()[: count * stride - short]
            at = number * spacing
            self.ring.data[at : at + len(content)] = np.frombuffer(content, np.uint8)
            self._describe(number, len(content), stride, joined=count > 1)
            total += count
        return messages, total

    def _seal(self, rows: Bytes) -> None:
        if rows.shape[1] < HEADER_SIZE or rows.shape[1] > HEADER_SIZE + 8896:
            return
        size, key = rows.shape[1] - HEADER_SIZE, ctypes.c_void_p(SECRET.material.ctypes.data)
        head = np.zeros(
            HEADER_SIZE, np.uint8
        )  # in a ring headers lie anywhere; here C has a struct
        for row in rows:
            head[:] = row[:HEADER_SIZE]
            checksum = self.library.dlcpd_checksum(
                ctypes.c_void_p(head.ctypes.data),
                ctypes.c_void_p(row.ctypes.data + HEADER_SIZE),
                size,
                key,
            )
            row[32:40] = np.frombuffer(checksum.to_bytes(8, "little"), np.uint8)

    def _describe(self, number: int, size: int, stride: int, *, joined: bool) -> None:
        control = control_messages(stride, joined=joined, marked=False)
        row, header = self.ring.control[number], self.ring.messages[number]
        row[:] = 0
        row[: len(control)] = np.frombuffer(control, np.uint8)
        header["size"], header["control_size"], header["flags"] = size, len(control), 0

    def take(self, messages: int) -> None:
        """What core does with them; transfers that C knows may end in between."""
        for batch in self.ring.digest(messages)[0]:
            self.strays += len(batch.strays)
            for group in batch.groups(self.counters):
                at = group.header.token, group.header.key
                incoming = self.open.get(at)
                if incoming is None:
                    continue
                if self.random.random() < 0.02:
                    self.table.close(self.open.pop(at))
                elif self.random.random() < 0.02:
                    self.table.close(incoming)
                    self.table.open(at[0], incoming)  # another row, or another time
                placed = group.place(incoming)
                self.fresh += placed.fresh

    def check(self) -> None:
        for whole in self.memory:
            assert (whole[:MARGIN] == CANARY).all()
            assert (whole[-MARGIN:] == CANARY).all()


def test_datagrams_made_of_fields_write_nothing_beside_a_place() -> None:
    bench, sent = Bench(), 0
    while sent < DATAGRAMS:
        bench.change()
        messages, count = bench.fill()
        bench.take(messages)
        bench.check()
        sent += count
    assert bench.fresh > sent // 200, f"{bench.fresh} of {sent} are of use"
    assert bench.strays
    refused = {"version", "flags", "path", "segment", "tag", "length", "short", "checksum"}
    assert refused <= set(bench.counters), bench.counters
    for incoming in bench.open.values():
        bench.table.close(incoming)
    assert len(bench.table) == len(bench.table.sums) == 0
